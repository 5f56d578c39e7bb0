"""What a run cost, and what it had cost when its validation accuracy came to a level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vinejax.config import Config
from vinejax.report.costs import CPU

VALIDATION = "validation/pass_at_1"
UPDATES = "training/updates"  # in the last line of each round of a method that trains in rounds


@dataclass(frozen=True)
class Curve:
    """Validations of a run in order, that of the start first, and the costs at each.

    Costs are those of training alone: validations are left out, and so is compiling.
    """

    pass_at_1: list[float]
    episodes: list[float]
    updates: list[float]
    cpu_seconds: list[float]
    in_rounds: bool  # the policy jumps at each validation instead of changing in between

    def reach(self, level: float, cost: str) -> float | None:
        """What of `cost` (episodes, updates, cpu_seconds) was spent when the accuracy was `level`.

        Between two validations both are taken to grow linearly; with `in_rounds` the later one
        counts. None where no validation came to the level.
        """
        spent: list[float] = getattr(self, cost)
        for i, reached in enumerate(self.pass_at_1):
            if reached >= level:
                if i == 0 or self.in_rounds:
                    return spent[i]
                before = self.pass_at_1[i - 1]
                share = (level - before) / (reached - before)
                return spent[i - 1] + share * (spent[i] - spent[i - 1])
        return None


def curve(config: Config, start: float, lines: Sequence[Mapping[str, Any]]) -> Curve:
    """Of the run of `config` with these lines of metrics, whose start had the accuracy `start`."""
    counts = updates_of(config, lines)
    found = Curve([start], [0.0], [0.0], [0.0], any(UPDATES in line for line in lines))
    updates = seconds = 0.0
    for line, count in zip(lines, counts, strict=True):
        updates += count
        seconds += line[f"{CPU}/iteration"] - line.get(f"{CPU}/validation", 0.0)
        if VALIDATION in line:
            found.pass_at_1.append(line[VALIDATION])
            found.episodes.append(float(line["iteration"] * config.episodes))
            found.updates.append(updates)
            found.cpu_seconds.append(seconds)
    return found


def updates_of(config: Config, lines: Sequence[Mapping[str, Any]]) -> list[float]:
    """Optimizer steps of the policy in each iteration."""
    if any(UPDATES in line for line in lines):
        return [line.get(UPDATES, 0) for line in lines]
    return [config.updates / config.iterations] * len(lines)
