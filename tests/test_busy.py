"""The share of an iteration in which a program is at work, by hand; and of a real profile."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchmarks import busy
from vinejax.config import UserError
from vinejax.train.clock import Clock
from vinejax.train.profile import FOLDER, profiled


def test_spans_are_joined_and_what_they_leave_is_between_them():
    spans = busy.union([(5, 6), (0, 2), (1, 3), (3, 4)])
    assert spans == [(0, 4), (5, 6)]
    assert busy.between(spans, (0, 10)) == [(4, 5), (6, 10)]
    assert busy.between([], (0, 10)) == [(0, 10)]
    assert busy.clip((-1, 3), (0, 10)) == (0, 3)


def test_a_wait_belongs_to_the_phase_that_has_most_of_it():
    spans: dict[str, list[busy.Span]] = {"iteration": [(0, 10)], "values": [(0, 4)]}
    assert busy._phase((2, 5), spans) == "values"
    assert busy._phase((6, 7), spans) == "between phases"


def test_a_profile_of_an_iteration_is_written_and_read(tmp_path: Path):
    clock, work = Clock(), jax.jit(lambda x: (x @ x).sum())
    for iteration in (1, 2):
        with profiled(tmp_path, iteration == 2), clock("iteration"), clock("values"):
            for _ in range(3):
                work(jnp.ones((1000, 1000))).block_until_ready()
    result = busy.measure(busy.Flags(profile=tmp_path / FOLDER))
    assert 0 < result["busy"] < 1
    assert 0 < result["busy_by_phase"]["values"] <= 1
    assert "values" in busy.table(result)


def test_a_folder_without_a_profile_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="holds no"):
        busy.measure(busy.Flags(profile=tmp_path))
    with pytest.raises(UserError, match="--profile is missing"):
        busy.measure(busy.Flags())
