"""A grader that fails looks like a bad policy unless it is said: metric, alarm, evaluation."""

import json
from pathlib import Path

import pytest

from tests.e2e import runs

RAISING = {"task__name": "tests.e2e.tasks:Raising", "sft__epochs": 0, "grading__workers": 1}
FAULT = "KeyError: 'gold'"


def test_a_grader_that_always_raises_is_named_from_the_first_validation_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs.train(*runs.flags(tmp_path / "run", **RAISING, iterations=2))
    lines = runs.metrics(tmp_path / "run")
    assert [line["grading_errors"] for line in lines] == [1.0, 1.0]
    assert lines[-1]["validation/grading_errors"] == 1.0
    assert {line["error_share"] for line in lines} == {0.0}  # which is about the sampler
    assert runs.summary(tmp_path / "run")["final_grading_errors"] == 1.0
    told = [line for line in capsys.readouterr().err.splitlines() if FAULT in line]
    assert len(told) == 1  # said once, not in every iteration
    for words in ("iteration 0", "failed on 100%", "grade method", "verdicts.jsonl"):
        assert words in told[0]


def test_without_iterations_the_start_is_told_of_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = RAISING | {"sft__epochs": 1, "algorithm": "sft"}
    runs.train(*runs.flags(tmp_path / "run", **flags))
    assert FAULT in capsys.readouterr().err


def test_a_healthy_grader_has_a_share_of_0(tmp_path: Path):
    runs.train(*runs.flags(tmp_path / "run", iterations=1, sft__epochs=0))
    (line,) = runs.metrics(tmp_path / "run")
    assert line["grading_errors"] == line["validation/grading_errors"] == 0.0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["sft_grading_errors"] == 0
