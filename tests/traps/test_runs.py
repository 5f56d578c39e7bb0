"""Traps of whole runs: orders that repeat after a resume, means of means, heavy installs."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.e2e import runs
from tests.train.enumerable import CONFIG, setup_of
from vinejax import report, update
from vinejax.train import batches, learning, supervised
from vinejax.train.trajectories import choose_prompts

ROOT = Path(__file__).resolve().parents[2]


def test_orders_follow_from_the_iteration_and_not_from_what_a_process_has_done_before():
    """Prompts, minibatches and demonstrations of a later place, asked for first or last."""
    setup = setup_of()
    rows = {"tokens": np.arange(32 * 4).reshape(32, 4) % 7, "length": np.full(32, 4, np.int32)}
    rows |= {"is_response": np.ones((32, 4), bool)}
    config = replace(CONFIG, update=replace(CONFIG.update, minibatch=16, microbatch=16, epochs=2))

    def orders(iterations: range) -> dict[int, list[bytes]]:
        found = {}
        for i in iterations:
            prompts = [p.problem.id for p in choose_prompts(setup, i)]
            parts = learning.minibatches(config, i, 2, rows, setup.mesh)
            shuffled = batches.shuffled(40, 8, i, (0, supervised.STREAM))
            found[i] = [repr(prompts).encode(), *(p["tokens"].tobytes() for p in parts)]
            found[i].append(np.asarray(shuffled).tobytes())
        return found

    whole = orders(range(6))
    assert orders(range(3, 6)) == {i: whole[i] for i in range(3, 6)}
    for place in range(1, len(whole[0])):  # (the enumerable task has too few prompts to differ)
        assert len({whole[i][place] for i in whole}) > 1, "every iteration has the same order"


def test_metrics_of_an_iteration_are_means_over_tokens_not_over_updates():
    def metrics(ratio: float, tokens: float) -> update.Metrics:
        own = {f.name: np.float32(0) for f in fields(update.Metrics)}
        return update.Metrics(**own | {"ratio": ratio, "tokens": tokens, "sequences": 1.0})

    found = learning.combine([metrics(1.0, 90.0), metrics(2.0, 10.0)])
    assert found["ratio"] == pytest.approx(1.1)
    assert (found["tokens"], found["sequences"]) == (100, 2)


def test_everything_imports_without_torch_tensorflow_or_vllm():
    """On a plain CPU install; the report's scripts and parity tests are no part of it."""
    code = """
import importlib, pkgutil, sys
for name in ("torch", "tensorflow", "vllm", "libtpu", "triton"):
    sys.modules[name] = None
import experiments, vinejax
for package in (vinejax, experiments):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print(sum(name.startswith("vinejax") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 60
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    asked = {line.split(">")[0].split("=")[0].split("[")[0] for line in lines if line[:1] != "#"}
    assert not asked & {"torch", "tensorflow", "vllm", "libtpu", "triton"}


@pytest.mark.slow
def test_a_hundred_iterations_hold_no_more_than_the_first_ones(tmp_path: Path):
    """Programs, open files, checkpoints and memory of a run whose iterations are all alike."""
    out = tmp_path / "run"
    sizes = {"iterations": 120, "sft__epochs": 0.2, "algorithm": "grpo", "evaluation__every": 40}
    runs.train(*runs.flags(out, **sizes, checkpoint__every=5))
    lines = report.read_metrics(out)
    early, late = lines[19:40], lines[99:]
    assert sum(line["time/compiles"] for line in late) == 0
    assert {p.name for p in (out / "checkpoints" / "policy").iterdir()} == {"115", "120"}
    assert len(list((out / "rollouts").iterdir())) == 120
    if "machine/open_files" in lines[0]:
        files, memory = (
            [[line[f"machine/{name}"] for line in part] for part in (early, late)]
            for name in ("open_files", "resident_mb")
        )
        assert max(files[1]) <= max(files[0])
        assert np.median(memory[1]) < 1.02 * np.median(memory[0])
    jax.clear_caches()
