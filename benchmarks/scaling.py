"""What sampling values costs as the work grows: trajectories, steps, K, response length, slots.

    python -m benchmarks.scaling [--shape=128,4,4,2,32,384,1024] [--doublings=1] [--json]

From one base list of jobs, one number at a time is doubled. `growth` holds, for each doubling, the
CPU-seconds over those of the list before, and `growth_of_tokens` the same of useful tokens: lengths
are drawn, so a doubled list has not exactly twice the tokens. `cost_per_token` is the CPU-seconds a
useful token over the base's, 1 if cost is proportional to work. One thread on one core; medians
over rounds, in each of which every list is sampled once.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks import command, turns, workload
from vinejax.config import UserError

BASE = "base"
AXES = ("trajectories", "states", "k", "mean", "slots")
NAMES = {"states": "steps", "mean": "response length"}


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    shape: str = "128,4,4,2,32,384,1024"  # or slice6, smollm2-135m
    trajectories: int = 32  # The base list: so many trajectories,
    states: int = 4  # with so many step boundaries each,
    k: int = 4  # so many continuations of each,
    mean: int = 40  # of so many tokens on average,
    slots: int = 16  # decoded so many at once: few, so that the list has no long tail.
    width: int = 256  # Tokens of a trajectory; responses are shorter.
    doublings: int = 1  # How often each number is doubled.
    rounds: int = 3
    seed: int = 0
    json: bool = False  # Print the result as one JSON line.


def points(flags: Flags) -> dict[str, dict[str, Any]]:
    """The lists by name: the base, and each number doubled once, twice, ..."""
    base = {axis: getattr(flags, axis) for axis in AXES}
    out = {BASE: base}
    for axis in AXES:
        for n in range(1, flags.doublings + 1):
            out[f"{axis} x {2**n}"] = base | {axis: base[axis] * 2**n}
    return out


def spec_of(flags: Flags, point: dict[str, Any]) -> dict[str, Any]:
    """What the worker adds for one list."""
    sizes = {axis: point[axis] for axis in AXES if axis != "slots"}
    work = workload.values(**sizes, width=flags.width, seed=flags.seed)
    return {"work": work.to_json(), "slots": point["slots"]}


def measure(flags: Flags) -> dict[str, Any]:
    """The result of all rounds, as it is printed."""
    for name in (*AXES, "doublings"):
        if getattr(flags, name) < 1:
            raise UserError(f"--{name} is {getattr(flags, name)}: give 1 or more")
    lists = points(flags)
    common = {"shape": asdict(workload.shape(flags.shape)), "rows": 0, "seed": flags.seed}
    common |= {"temperature": 0.6, "top_p": 0.9, "logit_spread": 4.0}
    spec = common | {"points": {name: spec_of(flags, point) for name, point in lists.items()}}
    engine = turns.Engine("benchmarks.engines.scaling_rollouts", spec)
    infos, rounds = turns.take_turns({"vinejax": engine}, flags.rounds)
    runs = [run["points"] for run in rounds["vinejax"]]
    rows = {name: _row(lists[name], [run[name] for run in runs]) for name in lists}
    cost = rows[BASE]["cpu_seconds"] / rows[BASE]["useful_tokens"]
    for row in rows.values():
        row["cost_per_token"] = row["cpu_seconds"] / row["useful_tokens"] / cost
    return {
        "benchmark": "scaling",
        "shape": flags.shape,
        **infos["vinejax"],
        "growth": _growth(rows, "cpu_seconds", flags.doublings),
        "growth_of_tokens": _growth(rows, "useful_tokens", flags.doublings),
        "points": rows,
    }


def _row(point: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    kept = ("useful_tokens", "steps", "slot_utilisation", "prefill_tokens", "prefill_cpu_seconds")
    seconds = statistics.median(run["cpu_seconds"] for run in runs)
    return point | {name: runs[0][name] for name in kept} | {"cpu_seconds": seconds}


def _growth(rows: dict[str, dict[str, Any]], of: str, doublings: int) -> dict[str, list[float]]:
    """By axis: for each doubling, the number `of` the list over that of the list before."""
    out = {}
    for axis in AXES:
        names = [BASE, *(f"{axis} x {2**n}" for n in range(1, doublings + 1))]
        found = [rows[name][of] for name in names]
        out[NAMES.get(axis, axis)] = [after / before for before, after in pairwise(found)]
    return out


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = ["list                 tokens    steps   utilisation   CPU-s   cost a token"]
    for name, row in result["points"].items():
        lines.append(
            f"{name:<18} {row['useful_tokens']:8} {row['steps']:8} {row['slot_utilisation']:13.2f}"
            f" {row['cpu_seconds']:7.2f} {row['cost_per_token']:14.2f}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "scaling", __doc__, measure, table)


if __name__ == "__main__":
    sys.exit(main())
