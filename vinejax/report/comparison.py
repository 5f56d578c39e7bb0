"""Methods beside each other: accuracy, costs, and costs up to a level, over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinejax.config import Config
from vinejax.report.curve import Curve, curve, updates_of
from vinejax.statistics import interval_of_mean

LEVELS = (0.3, 0.5, 0.7, 0.9)
COSTS = ("episodes", "updates", "cpu_seconds")
POLICIES = ("sft", "final", "best")
TARGETS = {"ppo": "PPO's best", "grpo": "GRPO's best"}  # methods whose best is a level, by seed
MEASURED = ("kl_k1", "kl_k3", "value_error", "value_error_constant", "value_correlation")


@dataclass(frozen=True)
class Outcome:
    """A finished run, as its folder has it."""

    config: Config
    summary: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]  # of metrics.jsonl
    endpoint: Mapping[str, Any]
    start_pass_at_1: float  # of the start on validation
    arm: str = ""  # its row; a method's own name unless settings of a method are compared

    @property
    def name(self) -> str:
        """The row of a comparison that the run belongs to."""
        return self.arm or self.config.algorithm

    @property
    def curve(self) -> Curve:
        """Its validations with their costs."""
        return curve(self.config, self.start_pass_at_1, self.lines)

    def sum(self, name: str) -> float:
        """A metric, over all iterations."""
        return sum(line.get(name, 0) for line in self.lines)


def compare(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All numbers of a comparison, by method and by seed; entries that are times say seconds.

    Seeds are in the order in which they come, the same for all methods.
    """
    methods = list(dict.fromkeys(o.name for o in outcomes))
    groups = {m: [o for o in outcomes if o.name == m] for m in methods}
    seeds = [o.config.seed for o in groups[methods[0]]]
    levels = {
        level: [max(o.curve.pass_at_1) for o in groups[method]]
        for method, level in TARGETS.items()
        if method in groups
    }
    levels |= {f"{level:g}": [level] * len(seeds) for level in LEVELS}
    return {
        "seeds": seeds,
        "levels": levels,
        "methods": {m: _of_method(group, levels) for m, group in groups.items()},
    }


def _of_method(group: Sequence[Outcome], levels: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        "pass_at_1": {
            policy: over_seeds([o.summary[f"{policy}_pass_at_1"] for o in group], 0.0, 1.0)
            for policy in POLICIES
        },
        "validation": [o.curve.pass_at_1 for o in group],
        "episodes": [o.summary["episodes"] for o in group],
        "updates": [round(sum(updates_of(o.config, o.lines))) for o in group],
        "tokens_sampled": [o.sum("tokens_sampled") for o in group],
        "tokens_sampled_values": [o.sum("tokens_sampled_values") for o in group],
        "tokens_trained": [o.sum("tokens_trained") for o in group],
        "training_cpu_seconds": [o.curve.cpu_seconds[-1] for o in group],
        "cpu_seconds_by_phase": [o.summary["seconds_of_cpu_by_phase"] for o in group],
        "seconds_by_phase": [o.summary["seconds_by_phase"] for o in group],
        **{name: [o.endpoint[name] for o in group] for name in MEASURED},
        "to_level": {
            name: {
                cost: [o.curve.reach(y, cost) for o, y in zip(group, level, strict=True)]
                for cost in COSTS
            }
            for name, level in levels.items()
        },
    }


def over_seeds(values: Sequence[float], low: float, high: float) -> dict[str, Any]:
    """Values by seed, their mean, and its t-interval cut to [low, high]; none of one seed."""
    found = interval_of_mean(values)
    return {
        "by_seed": list(values),
        "mean": float(np.mean(values)),
        "interval": [max(low, found[0]), min(high, found[1])] if len(values) > 1 else None,
    }


def tables(result: Mapping[str, Any]) -> str:
    """The comparison as Markdown that reads as well on a terminal."""
    methods: Mapping[str, Any] = result["methods"]
    return "\n\n".join(
        [
            _accuracy(methods, result["seeds"]),
            _costs(methods),
            _phases(methods),
            _levels(methods, result["levels"]),
            NOTES,
        ]
    )


NOTES = """\
pass@1 in percent on the test problems; with several seeds the mean and its 95 % t-interval over
seeds. Vines: rollouts for values. CPU-seconds are user and system time of the run's processes,
without validation and without compiling; SFT and the last test are left out of all costs. KL to the
start (k3, nats a token) and value error are those of the last policy on episodes of its own; the
value error is the mean distance to the mean of fresh rollouts, in brackets that of giving every
state the mean. "To a level": episodes / updates / CPU-seconds until validation pass@1 came to it,
linear between validations, but at the end of the round for methods that train once a round; the
mean over the seeds that got there, of how many if not all, and - if none."""


def _accuracy(methods: Mapping[str, Any], seeds: Sequence[int]) -> str:
    several = len(seeds) > 1
    head = ["method", "after SFT", "at the end", "best on validation"]
    head += [f"end, seed {seed}" for seed in seeds] if several else []
    rows = [
        [name, *(_with_interval(m["pass_at_1"][policy]) for policy in POLICIES)]
        + [_percent(x) for x in m["pass_at_1"]["final"]["by_seed"] if several]
        for name, m in methods.items()
    ]
    return markdown(head, rows)


def _costs(methods: Mapping[str, Any]) -> str:
    head = ["method", "episodes", "updates", "tokens sampled", "of them vines", "CPU-s", "wall s"]
    head += ["KL to start", "value error"]
    rows = []
    for name, m in methods.items():
        counts = ("episodes", "updates", "tokens_sampled", "tokens_sampled_values")
        wall = [p["iteration"] - p.get("validation", 0) for p in m["seconds_by_phase"]]
        error, constant = (mean(m[key]) for key in ("value_error", "value_error_constant"))
        quality = "-" if error is None else f"{error:.3f} ({constant:.3f})"
        times = [m["training_cpu_seconds"], wall]
        row = [name, *(f"{mean(m[key]):,.0f}" for key in counts)]
        row += [_seconds(mean(x) or 0.0) for x in times]
        rows.append([*row, f"{mean(m['kl_k3']):.3f}", quality])
    return markdown(head, rows)


def _phases(methods: Mapping[str, Any]) -> str:
    """CPU-seconds of the parts of training, means over seeds."""
    rest = ("iteration", "validation")
    every = [p for m in methods.values() for p in m["cpu_seconds_by_phase"]]
    phases = [name for name in dict.fromkeys(n for p in every for n in p) if name not in rest]
    rows = [
        [name]
        + [
            f"{mean([p.get(phase, 0.0) for p in m['cpu_seconds_by_phase']]):.1f}"
            for phase in phases
        ]
        for name, m in methods.items()
    ]
    return markdown(["CPU-seconds", *phases], rows)


def _levels(methods: Mapping[str, Any], levels: Mapping[str, Sequence[float]]) -> str:
    head = ["to validation pass@1"]
    for name, values in levels.items():
        level = _percent(float(np.mean(values)))
        head.append(f"{name}, {level}" if name in TARGETS.values() else level)
    rows = [
        [name, *(_to_level(m["to_level"][level]) for level in levels)]
        for name, m in methods.items()
    ]
    return markdown(head, rows)


def _to_level(costs: Mapping[str, Sequence[float | None]]) -> str:
    seeds = len(costs[COSTS[0]])
    reached = sum(x is not None for x in costs[COSTS[0]])
    if not reached:
        return "-"
    episodes, updates, seconds = (mean(costs[cost]) or 0.0 for cost in COSTS)
    text = f"{episodes:,.0f} / {updates:,.0f} / {_seconds(seconds)}"
    return text if reached == seeds else f"{text} ({reached} of {seeds})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def mean(values: Sequence[float | None]) -> float | None:
    """Of what is there; None of nothing."""
    there = [x for x in values if x is not None]
    return float(np.mean(there)) if there else None


def _with_interval(numbers: Mapping[str, Any]) -> str:
    text = _percent(numbers["mean"])
    if numbers["interval"] is None:
        return text
    low, high = numbers["interval"]
    return f"{text} ({_percent(low)} to {_percent(high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned in plain text, too; numbers to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    cells.insert(1, lines)
    return "\n".join(
        "| "
        + " | ".join(
            text.ljust(w) if i == 0 else text.rjust(w)
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in cells
    )
