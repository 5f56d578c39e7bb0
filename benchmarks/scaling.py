"""What sampling values costs as the work grows: trajectories, steps, K, response length, slots.

    python -m benchmarks.scaling [--shape=128,4,4,2,32,384,1024] [--doublings=1] [--json]

From one base list of jobs, one number at a time is doubled. `growth` holds, for each doubling, the
CPU-seconds over those of the list before, as [min, median, max] over rounds, in each of which every
list is sampled once; `growth_of_tokens` is the same of useful tokens: lengths are drawn, so a
doubled list has not exactly twice the tokens. `cost_per_token` is the CPU-seconds a useful token
over the base's, 1 if cost is proportional to work. One thread on one core.
"""

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
    return {
        "benchmark": "scaling",
        "shape": flags.shape,
        **infos["vinejax"],
        **growth(runs, flags.doublings),
        "points": {name: _row(name, lists[name], runs) for name in lists},
    }


Runs = list[dict[str, dict[str, Any]]]  # a round's facts by list


def growth(runs: Runs, doublings: int) -> dict[str, Any]:
    """By axis, for each doubling: of time, as [min, median, max] within rounds; of tokens."""
    time: dict[str, list[list[float]]] = {}
    tokens: dict[str, list[float]] = {}
    for axis in AXES:
        names = [BASE, *(f"{axis} x {2**n}" for n in range(1, doublings + 1))]
        axis = NAMES.get(axis, axis)
        time[axis], tokens[axis] = [], []
        for one, two in pairwise(names):
            ratios = [run[two]["cpu_seconds"] / run[one]["cpu_seconds"] for run in runs]
            time[axis].append(turns.spread(ratios))
            tokens[axis].append(runs[0][two]["useful_tokens"] / runs[0][one]["useful_tokens"])
    return {"growth": time, "growth_of_tokens": tokens}


def _row(name: str, point: dict[str, Any], runs: Runs) -> dict[str, Any]:
    kept = ("useful_tokens", "steps", "slot_utilisation", "prefill_tokens", "prefill_cpu_seconds")
    return (
        point
        | {fact: runs[0][name][fact] for fact in kept}
        | {
            "cpu_seconds": turns.spread(run[name]["cpu_seconds"] for run in runs)[1],
            "cost_per_token": turns.spread(_cost(run[name]) / _cost(run[BASE]) for run in runs)[1],
        }
    )


def _cost(facts: dict[str, Any]) -> float:
    return facts["cpu_seconds"] / facts["useful_tokens"]


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
