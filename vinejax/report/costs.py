"""Tokens and seconds of a run by phase, from the lines of metrics.jsonl."""

from collections.abc import Iterable, Mapping
from typing import Any

# Of this process and those it has started, compiling left out: to compare on a busy machine.
CPU = "time/cpu_seconds"
# Under time/ in metrics.jsonl, but no duration of a phase.
NO_PHASES = (
    "time/compiles",
    "time/compiling_cpu_seconds",
    "time/tokens_per_second",
    "time/written",
)


def costs(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over iterations: tokens_*, `seconds_by_phase` and `seconds_of_cpu_by_phase`.

    What ends in _values or _critic is part of the count without that ending. SFT is left out.
    """
    tokens = {"tokens_sampled": 0, "tokens_trained": 0}
    seconds: dict[str, float] = {}
    of_cpu: dict[str, float] = {}
    for line in lines:
        for name, value in line.items():
            if name.startswith("tokens_"):
                tokens[name] = tokens.get(name, 0) + value
            elif name.startswith("time/") and name not in NO_PHASES:
                phase = name.removeprefix(f"{CPU}/").removeprefix("time/")
                sums = of_cpu if name.startswith(CPU) else seconds
                sums[phase] = round(sums.get(phase, 0.0) + value, 3)
    return tokens | {"seconds_by_phase": seconds, "seconds_of_cpu_by_phase": of_cpu}
