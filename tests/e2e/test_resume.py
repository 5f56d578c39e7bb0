"""A run that was killed, or stopped and continued, is the run that was never interrupted."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.e2e import runs
from tests.test_report import points
from vinejax.checkpoint import Checkpoints, CheckpointWarning
from vinejax.report import read_rollouts
from vinejax.train.stopping import StopRequest

EVALUATED = "validation/"


def learned(out: Path) -> list[dict[str, Any]]:
    """The metrics without evaluations."""
    return [
        {name: value for name, value in line.items() if not name.startswith(EVALUATED)}
        for line in runs.metrics(out)
    ]


def state(out: Path) -> list[np.ndarray]:
    """The policy's parameters and the optimizer's moments in the newest checkpoint."""
    with Checkpoints(out / "checkpoints" / "policy", read_only=True) as checkpoints:
        step = checkpoints.latest()
        assert step is not None
        record = checkpoints._record(step)["arrays"]
        target = {name: np.empty(shape, dtype) for name, (dtype, shape) in record.items()}
        tree, _ = checkpoints.restore(step, target)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same_run(a: Path, b: Path) -> None:
    """Metrics, TensorBoard, samples, state and summary are equal, bit for bit; time is left out."""
    assert runs.metrics(a) == runs.metrics(b)
    assert tensorboard(a) == tensorboard(b)
    assert runs.rollouts(a) == runs.rollouts(b)
    assert runs.summary(a) == runs.summary(b)
    for x, y in zip(state(a), state(b), strict=True):
        np.testing.assert_array_equal(x, y)


def tensorboard(out: Path) -> list[tuple[int, str, float]]:
    found = [point for point in points(out) if not point[1].startswith(("time/", "machine/"))]
    assert len({point[:2] for point in found}) == len(found)
    return found


def newest(out: Path) -> list[int]:
    """Steps of the policy's checkpoints that carry their name."""
    folder = out / "checkpoints" / "policy"
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


# Where the process dies, and at which visit; then the iterations in metrics.jsonl, the checkpoints,
# and how many lines of SFT the process has shown. The next process goes on from there.
DEATHS = [
    ("in_supervised_update", 53, [], [], 1),
    ("in_value_sampling", 2, [1], [], 1),  # SFT went on from its checkpoint at 50
    ("in_metrics_line", 2, [1], [], 0),
    ("in_checkpoint", 1, [1, 2], [], 0),
    ("in_policy_update", 10, [1, 2], [2], 0),
    ("in_test", 2, [1, 2, 3, 4], [2, 4], 0),
]
TWO_DEATHS = [
    ("in_value_sampling", 2, [1], [], 2),
    ("in_policy_update", 10, [1, 2], [2], 0),
]


@pytest.mark.parametrize("deaths", [TWO_DEATHS, runs.slow(DEATHS)], ids=["twice", "everywhere"])
def test_a_run_killed_again_and_again_equals_one_that_was_not(
    tmp_path: Path, deaths: list[tuple[str, int, list[int], list[int], int]]
):
    """That the calls return means that no grader outlives its run: it would hold stderr open."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for place, count, iterations, checkpoints, supervised in deaths:
        died = runs.start(
            place, str(count), *runs.flags(killed), "--resume", module="tests.e2e.killed"
        )
        assert died.returncode == -signal.SIGKILL, (place, died.stderr)
        found = [line["iteration"] for line in runs.report.read_metrics(killed)]
        assert found == iterations, place
        assert newest(killed) == checkpoints, place
        assert died.stderr.count("SFT step") == supervised, place
        assert not (killed / "summary.json").exists()
    runs.finish(*runs.flags(killed), "--resume")
    runs.finish(*runs.flags(whole))
    assert [line["iteration"] for line in runs.metrics(whole)] == [1, 2, 3, 4]
    assert_same_run(killed, whole)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("e2e") / "finished"
    runs.train(*runs.flags(out))
    rewards = [line["reward"] for line in runs.metrics(out)]
    assert len(set(rewards)) > 1, "the small run has nothing to learn from: rewards are all equal"
    return out


@pytest.fixture
def interrupted(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run, as if it had been killed in the third iteration."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "checkpoints" / "policy" / "4")
    (out / "summary.json").unlink()
    return out


@pytest.mark.parametrize("name", [runs.slow("SIGTERM"), runs.slow("SIGINT")])
def test_a_run_that_is_asked_to_stop_saves_and_goes_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Exit code 75, nothing done twice, and the same numbers as without the interruption."""
    out = tmp_path / "asked"
    monkeypatch.setenv("KILLED_BY", name)
    for place, count, said in (
        ("in_supervised_update", 20, "SFT step 20"),
        ("in_value_sampling", 1, "iteration 1"),
        ("in_policy_update", 5, "iteration 3"),
    ):
        stopped = runs.start(
            place, str(count), *runs.flags(out), "--resume", module="tests.e2e.killed"
        )
        assert stopped.returncode == 75, stopped.stderr
        assert f"{name} after {said}, which is saved" in stopped.stderr
    runs.finish(*runs.flags(out), "--resume")
    assert runs.metrics(out) == runs.metrics(finished)


def test_a_second_ctrl_c_stops_at_once():
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(notes.append) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.name == "SIGINT"
        assert "Ctrl-C stops at once" in notes[0]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_is_summed_up_and_left_alone(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    before = runs.contents(finished)
    runs.train(*runs.flags(finished), "--resume", "--json")
    shown = capsys.readouterr()
    assert json.loads(shown.out.splitlines()[-1]) == json.loads(before["summary.json"])
    assert "pass@1 (mean grade) at the end" in shown.err
    assert runs.contents(finished) == before


def test_resuming_twice_is_resuming_once(finished: Path, interrupted: Path):
    runs.train(*runs.flags(interrupted), "--resume")
    assert_same_run(interrupted, finished)
    once = runs.contents(interrupted)
    runs.train(*runs.flags(interrupted), "--resume")
    assert runs.contents(interrupted) == once


def test_verdicts_of_the_interrupted_iteration_come_from_the_journal(
    finished: Path, interrupted: Path
):
    """A grader that timed out must not find an answer the second time."""
    path = interrupted / "verdicts.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        if (entry["iteration"], entry["phase"]) == (2, "trajectories"):
            entry["verdicts"] = {key: [0.25, "planted"] for key in entry["verdicts"]}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    runs.train(*runs.flags(interrupted), "--resume")
    own, planted = read_rollouts(finished, 3), read_rollouts(interrupted, 3)
    assert [r["tokens"] for r in planted] == [r["tokens"] for r in own]
    assert {r["reward"] for r in planted if not r["unfinished"]} == {0.25}
    assert {r["reward"] for r in own} != {0.25}
    assert not any("planted" in line for line in path.read_text().splitlines()[len(entries) :])


def test_a_damaged_checkpoint_is_made_again_from_the_one_before(finished: Path, tmp_path: Path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "summary.json").unlink()
    files = [path for path in (out / "checkpoints" / "policy" / "4").rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    with pytest.warns(CheckpointWarning, match="checkpoint 4 .* is damaged and skipped"):
        runs.train(*runs.flags(out), "--resume")
    assert_same_run(out, finished)


def test_the_best_weights_are_on_disk_before_the_checkpoint_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both are written in the background; a kill between the two must not lose the best ones."""
    seal, save = Checkpoints._seal, Checkpoints.save
    sealed, named = [], []

    def slow(self: Checkpoints) -> None:
        if self.folder.name == "best":
            time.sleep(0.3)
            sealed.append(self._saving)
        seal(self)

    def watched(self: Checkpoints, step: int, tree: Any, meta: dict[str, Any]) -> None:
        if self.folder.name == "policy":
            named.append(meta["best"]["iteration"])
            assert named[-1] == 0 or named[-1] in sealed
        save(self, step, tree, meta)

    monkeypatch.setattr(Checkpoints, "_seal", slow)
    monkeypatch.setattr(Checkpoints, "save", watched)
    runs.train(*runs.flags(tmp_path / "run", evaluation__every=1, checkpoint__every=1))
    assert any(named), "no iteration of the small run is better than its start"


def test_evaluations_do_not_change_training(finished: Path, tmp_path: Path):
    runs.train(*runs.flags(tmp_path / "run", evaluation__every=1))
    assert learned(tmp_path / "run") == learned(finished)
    counts = [sum(EVALUATED in name for name in line) for line in runs.metrics(tmp_path / "run")]
    assert min(counts) > 0


@pytest.mark.slow
def test_a_longer_run_may_continue_a_shorter_one(tmp_path: Path):
    constant = {"update__decay": "constant", "update__warmup_ratio": 0}
    long, short = tmp_path / "long", tmp_path / "short"
    runs.train(*runs.flags(long, **constant))
    runs.train(*runs.flags(short, **constant, iterations=2))
    assert runs.summary(short)["iterations"] == 2
    runs.train(*runs.flags(short, **constant), "--resume")
    assert_same_run(short, long)
