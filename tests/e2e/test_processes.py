"""Several real processes do the run that one does, all methods, and end when one is lost."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from experiments import run
from tests import several
from tests.e2e import one_iteration, runs
from vinejax.train import algorithms

METHODS = [name for name in algorithms.names() if name != "sft"]
# Longer than `ONE`: SFT, and a second iteration that a checkpoint lies before.
MORE = {"iterations": 2, "sft__epochs": 1, "restem__rounds": 1}
LOST_WITHIN = 120  # seconds


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("processes") / "alone"
    runs.train(*one_iteration.flags(out))
    one_iteration.assert_is_a_test(out)
    return out


def test_two_processes_do_the_iteration_of_one(alone: Path, tmp_path: Path):
    out = tmp_path / "two"
    several.finish(2, "experiments.run", *one_iteration.flags(out))
    one_iteration.assert_same(out, alone)
    assert runs.summary(out) == runs.summary(alone)
    graded = [line for name in ("", "-1") for line in _journal(out / f"verdicts{name}.jsonl")]
    assert graded  # by both, each answer by one of them
    assert all(_journal(out / f"verdicts{name}.jsonl") for name in ("", "-1"))
    assert dict(graded) == dict(_journal(alone / "verdicts.jsonl"))
    assert len(graded) == len(dict(graded))


def _journal(path: Path) -> list[tuple[str, list]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(f"{line['iteration']}-{k}", v) for line in lines for k, v in line["verdicts"].items()]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "devices"), [(4, 1), (2, 2)])
def test_so_do_more_processes_and_devices(count: int, devices: int, alone: Path, tmp_path: Path):
    out, mesh = tmp_path / "run", (-1, count * devices // 2, 1)
    several.finish(count, "experiments.run", *one_iteration.flags(out, mesh), devices=devices)
    one_iteration.assert_same(out, alone)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_works_on_two_processes(method: str, tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    changes = MORE | {"algorithm": method, "evaluation__problems": 4}
    runs.train(*one_iteration.flags(one, **changes))
    several.finish(2, "experiments.run", *one_iteration.flags(two, **changes))
    one_iteration.assert_same(two, one, iteration=1)
    assert [line["iteration"] for line in runs.metrics(two)] == [1, 2]
    assert runs.summary(two)["iterations"] == 2


@pytest.mark.slow
def test_what_eight_devices_saved_goes_on_elsewhere_to_the_same_iteration(tmp_path: Path):
    """On one device, on four, and on two processes."""
    begun = tmp_path / "eight"
    with runs.some_devices(8):
        assert run.main(one_iteration.flags(begun, (2, 4, 1))) == 0
    ways = {"one": (1, -1), "four": (4, -1), "two": (2, 2)}
    for name in ways:
        shutil.copytree(begun, tmp_path / name)
    for name, devices in (("one", 1), ("four", 4)):
        with runs.some_devices(devices):
            again = one_iteration.flags(tmp_path / name, iterations=2)
            assert run.main([*again, "--resume"]) == 0
    again = one_iteration.flags(tmp_path / "two", iterations=2)
    several.finish(2, "experiments.run", *again, "--resume")
    for name in ("four", "two"):
        one_iteration.assert_same(tmp_path / name, tmp_path / "one", iteration=2)


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_as_one(tmp_path: Path):
    """Verdicts of both journals are known: none is given again."""
    out = tmp_path / "run"
    several.finish(2, "experiments.run", *one_iteration.flags(out))
    shutil.rmtree(out / "checkpoints" / "policy")  # so the iteration is done again
    (out / "summary.json").unlink()
    before = runs.rollouts(out), runs.metrics(out)
    written = [(out / f"verdicts{name}.jsonl").read_bytes() for name in ("", "-1")]
    runs.train(*one_iteration.flags(out), "--resume")
    assert runs.rollouts(out) == before[0]
    assert [(out / f"verdicts{name}.jsonl").read_bytes() for name in ("", "-1")] == written


@pytest.mark.slow
def test_sft_compares_its_candidates_on_two_processes(tmp_path: Path):
    changes = {"algorithm": "sft", "sft__epochs": 2, "sft__select": "validation"}
    one, two = tmp_path / "one", tmp_path / "two"
    runs.train(*one_iteration.flags(one, **changes))
    several.finish(2, "experiments.run", *one_iteration.flags(two, **changes))
    assert (one / "sft.json").read_text() == (two / "sft.json").read_text()
    assert runs.summary(two) == runs.summary(one)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_the_run_goes_on(tmp_path: Path):
    out = tmp_path / "run"
    flags = one_iteration.flags(out, iterations=12, checkpoint__every=100)
    running = several.start(2, "experiments.run", *flags)
    _first_iteration(out, running)
    os.kill(running[1].pid, signal.SIGTERM)
    for code, output in several.ends(running, 300):
        assert code == 75, output
    assert len(runs.metrics(out)) < 12
    several.finish(2, "experiments.run", *flags, "--resume")
    assert [line["iteration"] for line in runs.metrics(out)] == list(range(1, 13))


def _first_iteration(out: Path, running: list[subprocess.Popen[str]]) -> None:
    """Returns when a run has done one."""
    latest = time.monotonic() + 600
    while not (out / "metrics.jsonl").exists() or not runs.metrics(out):
        assert time.monotonic() < latest, "no iteration was done"
        assert all(process.poll() is None for process in running)
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_when_a_process_is_lost_the_other_ends_and_says_so(lost: int, tmp_path: Path):
    out = tmp_path / "run"
    running = several.start(2, "experiments.run", *one_iteration.flags(out, iterations=1000))
    _first_iteration(out, running)
    os.kill(running[lost].pid, signal.SIGKILL)
    begin = time.monotonic()
    ended = several.ends(running, LOST_WITHIN)
    assert time.monotonic() - begin < LOST_WITHIN
    code, output = ended[1 - lost]
    assert code not in (0, None)
    # Ours, or JAX's own where process 0 is gone or a process waits for something else.
    assert "process was lost" in output or "another task died" in output, output


def test_processes_that_differ_are_told(tmp_path: Path):
    flags = one_iteration.flags(tmp_path / "run")
    running = several.start(
        2, "experiments.run", *flags, own=["--config.seed=0", "--config.seed=1"]
    )
    for code, output in several.ends(running, 300):
        assert code == 2, output
        assert "has another configuration than process" in output
        assert "seed" in output
    assert not (tmp_path / "run").exists()
