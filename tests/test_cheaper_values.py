"""The benchmark of ways to measure values, on a policy that can be listed and on a fresh run."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import cheaper_values
from tests.train.enumerable import CONFIG, Exact, setup_of, weights, with_values
from vinejax.grading import GraderPool
from vinejax.train import trajectories
from vinejax.train.clock import Clock


@pytest.fixture(scope="module")
def setup_and_graders():
    setup = setup_of(cheaper_values.with_values(with_values(states="token", k=2)))
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        yield setup, graders


@pytest.mark.slow
def test_true_advantages_are_those_of_exact_values(setup_and_graders):
    setup, graders = setup_and_graders
    exact = Exact(setup)
    batch = trajectories.collect(setup, weights(), graders, 0, 0, Clock())
    values, steps = cheaper_values.true_advantages(setup, weights(), graders, batch, 1024)
    for m, (own, given) in enumerate(zip(values, steps, strict=True)):
        response = batch.responses[m].tokens.tolist()
        expected = [
            exact.moments(batch.problems[m].id, tuple(response[:t]), 4 - t, CONFIG.sampling.context)
            for t in range(len(response))
        ]
        if response:
            assert_allclose(own, [mean for mean, _ in expected], atol=0.06)
            assert_allclose(given, np.diff([*own, batch.reward[m]]), atol=1e-6)


def test_every_way_is_measured_and_more_samples_are_closer_to_the_truth(setup_and_graders):
    setup, graders = setup_and_graders
    rows = cheaper_values.measure(setup, weights(), graders, truth=256, iterations=2)
    by_name = {row["way"]: row for row in rows}
    assert list(by_name) == list(cheaper_values.WAYS)
    for k in (1, 3, 9):
        row = by_name[f"plain k={k}"]
        assert row["rollouts"] == k * row["states"]
        assert (row["samples_per_state"], row["pooled_share"]) == (k, 0)
    errors = [by_name[f"plain k={k}"]["value_error"] for k in (1, 3, 9)]
    assert errors == sorted(errors, reverse=True)
    assert by_name["pool k=3"]["rollouts"] == by_name["plain k=3"]["rollouts"]
    assert by_name["pool k=3"]["value_error"] < by_name["plain k=3"]["value_error"]
    assert by_name["pool k=3, min_samples=2"]["rollouts"] < by_name["pool k=3"]["rollouts"]
    assert all(name in cheaper_values.table({"ways": rows}) for name in by_name)
    json.dumps(rows)


def test_a_run_is_wanted(capsys):
    assert cheaper_values.main([]) == 2
    assert "--run=DIR is missing" in capsys.readouterr().err
    assert cheaper_values.main(["--run=x", "--truth=0"]) == 2
    assert "--truth is 0" in capsys.readouterr().err
