"""Pooled values, with fewer rollouts and states left out, in runs of the command."""

from pathlib import Path

import pytest

from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run

FIELDS = {
    "values__pool": "true",
    "values__budget": "remaining",
    "values__min_samples": 2,
    "values__plan": "skip:2",
    "values__states": "every:4",
    "samples": 4,
    "prompts": 2,
}


@pytest.mark.slow
def test_a_run_killed_between_two_rounds_of_rollouts_equals_one_that_was_not(tmp_path: Path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    flags = runs.flags(killed, **FIELDS)
    for rounds in (2, 5):
        died = runs.start("in_value_sampling", str(rounds), *flags, module="tests.e2e.killed")
        assert died.returncode == -9, died.stderr
        flags = [*runs.flags(killed, **FIELDS), "--resume"]
    runs.finish(*flags)
    runs.finish(*runs.flags(whole, **FIELDS))
    assert_same_run(killed, whole)
    lines = runs.metrics(whole)
    assert sum(line["states_left_out"] for line in lines) > 0
    for line in lines:
        assert 0 < line["pooled_share"] < 1
        assert line["samples_per_state"] >= 2
        assert line["rollouts"] < 2 * line["states"]


@pytest.mark.parametrize("flag", ["--config.values.min_samples=2", "--config.values.pool=true"])
def test_what_goes_together_is_checked_before_anything_starts(tmp_path: Path, flag: str):
    refused = runs.start(*runs.flags(tmp_path / "run"), flag)
    assert refused.returncode == 2
    assert "error: values." in refused.stderr
    assert not (tmp_path / "run").exists()
