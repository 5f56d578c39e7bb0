"""The metrics of runs as columns that charts can draw."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vinejax.report.curve import VALIDATION
from vinejax.report.metrics import WRITTEN
from vinejax.report.page.runs import Run

POINTS = 1_000  # of a run: more cannot be told apart on a screen
# The largest come first; those of other methods come behind.
PHASES = (
    "trajectories", "values", "update", "scoring", "reference", "grading", "critic", "validation",
    "weights",
)  # fmt: skip


def curves(run: Run) -> dict[str, Any]:
    """`x`, the axes to choose from, and `y`, all metrics that are numbers; a gap is null.

    Axes are counted at the end of an iteration: episodes, tokens sampled and wall seconds (with
    validation) since reinforcement learning began; SFT is not in them, wherever it was done. The
    validation of the start, where it is known, is at 0. Of more than `POINTS` lines those without a
    validation are thinned out.
    """
    lines = [{**run.start, "iteration": 0}, *run.lines] if run.start and run.lines else run.lines
    axes = _axes(lines, run.episodes)
    kept = _kept(lines)
    names = dict.fromkeys(name for line in lines for name in line)
    columns = {name: [line.get(name) for line in lines] for name in names}
    return {
        "x": {name: [column[i] for i in kept] for name, column in axes.items()},
        "y": {
            name: [_short(column[i]) for i in kept]
            for name, column in columns.items()
            if name not in ("iteration", WRITTEN) and any(map(_is_number, column))
        },
        "thinned": len(kept) < len(lines),
    }


def phases(run: Run) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of each part of an iteration; `other` is what no part has."""
    found = run.costs
    return {
        name: _parts(found[key])
        for name, key in (("wall", "seconds_by_phase"), ("cpu", "seconds_of_cpu_by_phase"))
    }


def _parts(seconds: Mapping[str, float]) -> dict[str, float]:
    names = [*PHASES, *(n for n in seconds if n not in (*PHASES, "iteration"))]
    parts = {name: seconds[name] for name in names if name in seconds}
    rest = seconds.get("iteration", 0.0) - sum(parts.values())
    return parts | ({"other": round(rest, 3)} if rest > 0.001 else {})


def _axes(lines: Sequence[Mapping[str, Any]], episodes: int) -> dict[str, list[float]]:
    """The end of each line's iteration; `episodes` is the number in one."""
    tokens = seconds = 0.0
    axes: dict[str, list[float]] = {
        name: [] for name in ("iterations", "episodes", "tokens", "seconds")
    }
    for line in lines:
        tokens += line.get("tokens_sampled") or 0
        seconds += line.get("time/iteration") or 0.0
        axes["iterations"].append(line["iteration"])
        axes["episodes"].append(line["iteration"] * episodes)
        axes["tokens"].append(int(tokens))
        axes["seconds"].append(round(seconds, 2))
    return axes


def _kept(lines: Sequence[Mapping[str, Any]]) -> list[int]:
    every = math.ceil(len(lines) / POINTS)
    last = len(lines) - 1
    return [i for i, line in enumerate(lines) if i % every == 0 or i == last or VALIDATION in line]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> float | None:
    return float(f"{value:.6g}") if _is_number(value) else None
