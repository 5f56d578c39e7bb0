"""Kills a run at random moments (kill -9), again and again, and compares it with one left alone.

    python -m benchmarks.faults --out=DIR --kills=20 --algorithm=vineppo --json

A run of a few seconds is made twice without interruption. Then the same run is started elsewhere,
killed, resumed, killed, until it has finished; and from the start again until there were enough
kills. Moments are uniform over the time that the second of them has worked, when all was compiled,
counted from a process's first change to the run folder. Behind every kill the iterations on disk
have to be 1, 2, 3, ... without a gap or a repetition, and a run that has finished must equal the
uninterrupted one bit for bit: metrics without times, rollouts, parameters, summary. Exit code 1 if
not.
"""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import command
from vinejax.config import RunError, UserError
from vinejax.report import read_metrics

ROOT = Path(__file__).resolve().parents[1]
LOOK = 0.02  # seconds between looks at a run folder

# 4 iterations of 4 problems x 2 trajectories, a checkpoint behind every second one.
SMALL = (
    *("iterations=4", "prompts=4", "samples=2", "checkpoint.every=2", "grading.workers=1"),
    *("policy.architecture.hidden=16", "policy.architecture.layers=1"),
    *("policy.architecture.heads=4", "policy.architecture.head_dim=4"),
    *("policy.architecture.ffn=32", "values.k=2", "update.minibatch=4", "update.microbatch=4"),
    *("task.options.length=2", "task.options.sft_size=800", "task.options.train_size=200"),
    *("task.options.validation_size=16", "task.options.test_size=16"),
    *("sft.epochs=1", "sft.batch=8"),
    *("sft.microbatch=8", "sft.learning_rate=1e-2", "update.learning_rate=1e-3"),
    *("evaluation.every=2", "evaluation.problems=4", "evaluation.test_problems=4"),
    *("evaluation.samples=2", "restem.rounds=2", "restem.evaluate_every=2"),
)


@dataclass(frozen=True)
class Flags:
    """What to kill, and how often."""

    out: Path | None = None  # Folder for the runs; holds whole/ and killed/ afterwards.
    config: str = "tiny"  # Named configuration.
    algorithm: str = "vineppo"  # Method.
    kills: int = 20  # Kills in all.
    seed: int = 0  # Chooses the moments.
    fields: tuple[str, ...] = SMALL  # FIELD=VALUE, which make the configuration small.
    timeout: float = 600.0  # Seconds that a process may take, at most.
    json: bool = False  # Print the result as one JSON line.


def measure(flags: Flags) -> dict[str, Any]:
    """Kills and compares; RunError at the first difference."""
    if flags.out is None:
        raise UserError("--out is missing: give a folder for the runs")
    whole, killed = flags.out / "whole", flags.out / "killed"
    if whole.exists() or killed.exists():
        raise UserError(f"--out is {flags.out}, which holds runs: give another folder")
    flags.out.mkdir(parents=True, exist_ok=True)
    finish(flags, whole)
    worked = finish(flags, killed)  # the first one may have compiled, which takes longer than all
    moments, iterations, finished = random.Random(flags.seed), [], _compared(whole, killed)
    shutil.rmtree(killed)
    while len(iterations) < flags.kills:
        if killed_at(flags, killed, moments.uniform(0, worked)):
            iterations.append(len(_checked(killed)))
        else:
            finished += _compared(whole, killed)
            shutil.rmtree(killed)
    finish(flags, killed)
    finished += _compared(whole, killed)
    return {
        "benchmark": "faults",
        "algorithm": flags.algorithm,
        "kills": len(iterations),
        "killed_behind_iteration": iterations,
        "runs_compared": finished,
        "equal": True,
    }


def start(flags: Flags, out: Path) -> subprocess.Popen[bytes]:
    """The run in `out`, in a process of its own; what it says is in `out`.log beside it."""
    fields = [f"--config.{field}" for field in flags.fields]
    arguments = [f"--config={flags.config}", f"--config.algorithm={flags.algorithm}", *fields]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.run", *arguments, f"--out={out}", "--resume"],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def finish(flags: Flags, out: Path) -> float:
    """Lets the run come to its end; seconds from its first change to the folder on."""
    process = start(flags, out)
    try:
        begin = _first_change(process, out)
        code = process.wait(flags.timeout)
    finally:
        process.kill()
    if code:
        raise RunError(f"the run in {out} ended with exit code {code}; {out}.log says why")
    return time.monotonic() - begin


def killed_at(flags: Flags, out: Path, seconds: float) -> bool:
    """Kills the run so long after its first change to the folder; False if it ended before."""
    process = start(flags, out)
    try:
        _first_change(process, out)
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    finally:
        process.kill()
        process.wait()
    if code:
        raise RunError(f"the run in {out} ended with exit code {code}; {out}.log says why")
    return False


def _first_change(process: subprocess.Popen[bytes], out: Path) -> float:
    """Waits until the process changes the folder, or ends; the time."""
    before = _times(out)
    while process.poll() is None and _times(out) == before:
        time.sleep(LOOK)
    return time.monotonic()


def _times(out: Path) -> dict[str, int]:
    """When each file of the folder was changed, as far as they stay long enough to ask."""
    found = {}
    for path in out.rglob("*"):
        try:
            found[str(path)] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found


def _checked(out: Path) -> list[dict[str, Any]]:
    """The metrics of a killed run; RunError if an iteration is missing or there twice."""
    lines = read_metrics(out)
    found = [line["iteration"] for line in lines]
    if found != list(range(1, len(found) + 1)):
        raise RunError(f"{out}/metrics.jsonl has the iterations {found}: look at {out}.log")
    return lines


def _compared(whole: Path, killed: Path) -> int:
    """1; RunError that names what differs."""
    different = differences(whole, killed)
    if different:
        raise RunError(f"{killed} differs from {whole} in {', '.join(different)}: compare the two")
    return 1


def differences(a: Path, b: Path) -> list[str]:
    """What differs between two finished runs; times and the machine's numbers aside."""
    checks: dict[str, Callable[[Path], Any]] = {
        "metrics": lambda out: [_steady(line) for line in _checked(out)],
        "rollouts": lambda out: {p.name: p.read_bytes() for p in (out / "rollouts").iterdir()},
        "summary": lambda out: _steady(json.loads((out / "summary.json").read_text())),
        "parameters": _parameters,
    }
    return [name for name, of in checks.items() if of(a) != of(b)]


def _steady(entries: dict[str, Any]) -> dict[str, Any]:
    changing = ("time/", "machine/", "seconds")
    return {name: value for name, value in entries.items() if not name.startswith(changing)}


def _parameters(out: Path) -> list[bytes]:
    from vinejax.train.run import load_policy

    _, params, _ = load_policy(out)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)]


def table(result: dict[str, Any]) -> str:
    """One line."""
    return (
        f"{result['algorithm']}: {result['kills']} kills, {result['runs_compared']} finished runs, "
        "all equal to the uninterrupted one"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "faults", __doc__, measure, table)


if __name__ == "__main__":
    sys.exit(main())
