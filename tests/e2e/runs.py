"""Runs of a few seconds: their flags, how they are started, and what they leave on disk."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from experiments import run
from vinejax import report, sharding

ROOT = Path(__file__).resolve().parents[2]

# 4 iterations of 4 problems x 2 trajectories, 4 updates each; 60 steps of SFT before.
SMALL = {
    "task.name": "tests.e2e.tasks:Digits",
    "task.max_prompt_tokens": 12,
    "policy.architecture.hidden": 16,
    "policy.architecture.layers": 1,
    "policy.architecture.heads": 4,
    "policy.architecture.kv_heads": 2,
    "policy.architecture.head_dim": 4,
    "policy.architecture.ffn": 32,
    "iterations": 4,
    "prompts": 4,
    "samples": 2,
    "sampling.max_new_tokens": 24,
    "sampling.context": 40,
    "values.k": 2,
    "values.context": 40,
    "update.minibatch": 4,
    "update.microbatch": 4,
    "update.learning_rate": 3e-3,
    "update.decay": "linear",
    "update.max_sequence": 40,
    "sft.epochs": 3,
    "sft.batch": 8,
    "sft.microbatch": 8,
    "sft.max_length": 40,
    "evaluation.every": 2,
    "evaluation.problems": 8,
    "evaluation.test_problems": 8,
    "evaluation.samples": 2,
    "evaluation.max_new_tokens": 24,
    "evaluation.context": 40,
    "checkpoint.every": 2,
    "grading.workers": 1,
}


def slow(*values: Any) -> Any:
    """A case of a test that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def flags(out: Path, **changes: Any) -> list[str]:
    """Arguments of experiments.run for a small run; `changes` name fields with __ for the dot."""
    fields = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
    return ["--config=tiny", f"--out={out}", *(f"--config.{k}={v}" for k, v in fields.items())]


def train(*arguments: str) -> None:
    """Calls experiments.run in this process, on one device; anything but success fails the test."""
    with one_device():
        assert run.main(arguments) == 0


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Meshes have one of the test process's eight devices."""
    with some_devices(1):
        yield


@contextlib.contextmanager
def some_devices(count: int) -> Iterator[None]:
    """Meshes have so many of them."""
    with pytest.MonkeyPatch.context() as patch:
        few = partial(sharding.make_mesh, devices=jax.devices()[:count])
        patch.setattr(sharding, "make_mesh", few)
        yield


def start(
    *arguments: str, module: str = "experiments.run", devices: int = 1, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs a module in a process of its own, with so many pretended devices."""
    count = f"--xla_force_host_platform_device_count={devices}" if devices > 1 else ""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": count, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def finish(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """`start`, and success."""
    done = start(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done


def metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without `time/*`, as they are on disk."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [without_time(line) for line in lines]


def without_time(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in line.items() if not name.startswith(("time/", "machine/"))
    }


def summary(out: Path) -> dict[str, Any]:
    """summary.json without the seconds."""
    entries = json.loads((out / "summary.json").read_text())
    return {k: v for k, v in entries.items() if not k.startswith("seconds")}


def rollouts(out: Path) -> dict[str, bytes]:
    """Content of the rollout files by name; equal records give equal bytes."""
    return {path.name: path.read_bytes() for path in (out / report.rollouts.FOLDER).iterdir()}


def contents(out: Path) -> dict[str, bytes]:
    """Everything in a run folder."""
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }
