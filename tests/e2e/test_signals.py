"""SIGTERM in each phase: saved, exit code 75, and the same numbers when the run goes on.

`test_resume` has SFT, rollouts for values and updates, in processes of their own.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, run
from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run
from vinejax import report
from vinejax.checkpoint import Checkpoints
from vinejax.grading import GraderPool
from vinejax.train import loop, scoring, trajectories
from vinejax.train.evaluation import evaluate

CHANGES = {"algorithm": "grpo", "sft__epochs": 0.2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signals") / "finished"
    runs.train(*runs.flags(out, **CHANGES))
    return out


def terminating(function: Callable[..., Any], visit: int) -> Callable[..., Any]:
    """`function`, at whose visit of this number a SIGTERM arrives."""
    visits = iter(range(1, 1000))

    def watched(*arguments: Any, **named: Any) -> Any:
        if next(visits) == visit:
            signal.raise_signal(signal.SIGTERM)
        return function(*arguments, **named)

    return watched


# The phase, where it can be noticed, and at which visit.
PHASES = {
    "trajectories": (trajectories, "collect", 2),
    "scoring": (scoring, "score", 3),
    "grading": (GraderPool, "submit", 2),
    "validation": (loop, "evaluate", 2),
    "rollouts": (report.RolloutLog, "write", 3),
    "metrics": (report.MetricsLog, "write", 1),
    "checkpoint": (Checkpoints, "save", 2),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_that_is_asked_to_stop_in_any_phase_saves_and_goes_on(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
):
    out = tmp_path / "run"
    place, name, visit = PHASES[phase]
    with monkeypatch.context() as patch, runs.one_device():
        patch.setattr(place, name, terminating(getattr(place, name), visit))
        assert run.main(runs.flags(out, **CHANGES)) == cli.PREEMPTED
    assert "SIGTERM after iteration" in capsys.readouterr().err
    done = len(report.read_metrics(out))
    assert 0 < done < 4
    with Checkpoints(out / "checkpoints" / "policy", read_only=True) as kept:
        assert kept.latest() == done
    runs.train(*runs.flags(out, **CHANGES), "--resume")
    assert_same_run(out, finished)


def test_behind_the_last_iteration_a_run_comes_to_its_end(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All is saved by then, and the test evaluation is what is left."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        place = importlib.import_module("vinejax.train.run")  # the package has the function there
        patch.setattr(place, "evaluate", terminating(evaluate, 1))
        runs.train(*runs.flags(out, **CHANGES))
    assert_same_run(out, finished)


@pytest.mark.slow
def test_a_stop_request_to_all_processes_of_a_run_is_one_to_the_run(finished: Path, tmp_path: Path):
    """As `timeout` and some schedulers send it: to the graders, too."""
    out = tmp_path / "run"
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.run", *runs.flags(out, **CHANGES)],
            cwd=runs.ROOT,
            env=os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"},
            stderr=said,
            start_new_session=True,
        )
        while not (out / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        code = process.wait(120)
        said.seek(0)
        assert code == cli.PREEMPTED, said.read()
    runs.train(*runs.flags(out, **CHANGES), "--resume")
    assert_same_run(out, finished)
