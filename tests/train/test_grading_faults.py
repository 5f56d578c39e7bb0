"""A grader that times out at random, in a run that is killed and goes on."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run

FLAGS = {
    "task__name": "tests.tasks.faulty_math:RandomlyHanging",
    "grading__workers": 2,
    "grading__limit": 0.05,
}
Line = dict[str, Any]


def journal(out: Path) -> list[Line]:
    return [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]


def notes(lines: list[Line]) -> list[str]:
    """Those of the training iterations 3 and 4, which are counted from 0 in the journal."""
    graded = [line for line in lines if line["iteration"] in (2, 3)]
    return [note for line in graded for _, note in line["verdicts"].values()]


def resume(out: Path) -> None:
    runs.train(*runs.flags(out, **FLAGS), "--resume")


def gone_back(out: Path, to: Path) -> Path:
    """A copy of a finished run, as if it had been killed before its last checkpoint."""
    shutil.copytree(out, to)
    shutil.rmtree(to / "checkpoints" / "policy" / "4")
    (to / "summary.json").unlink()
    return to


@pytest.mark.slow
def test_random_time_outs_change_no_number_of_a_run_that_is_killed_and_goes_on(tmp_path: Path):
    """Killed behind all gradings of iteration 4, whose metrics are torn; checkpoint 2 is there."""
    out = tmp_path / "killed"
    died = runs.start("in_metrics_line", "4", *runs.flags(out, **FLAGS), module="tests.e2e.killed")
    assert died.returncode == -signal.SIGKILL, died.stderr
    verdicts, samples = journal(out), runs.rollouts(out)
    metrics = [runs.without_time(line) for line in runs.report.read_metrics(out)]
    assert len(notes(verdicts)) > 30  # each of which times out half of the time
    assert set(notes(verdicts)) == {"", "timeout"}

    resume(out)
    assert runs.rollouts(out) == samples  # tokens, rewards, values, advantages
    assert runs.metrics(out)[:3] == metrics
    assert journal(out)[: len(verdicts)] == verdicts
    assert {line["phase"] for line in journal(out)[len(verdicts) :]} == {"test"}

    again = gone_back(out, tmp_path / "again")
    resume(again)
    assert_same_run(again, out)
    assert journal(again) == journal(out)

    without = gone_back(out, tmp_path / "without")
    (without / "verdicts.jsonl").unlink()
    resume(without)
    assert notes(journal(without)) != notes(journal(out))
    assert runs.rollouts(without) != samples
