"""What a run's own record says: accuracy against cost, against KL, and on the training problems.

Rewards and KL of an iteration are those of the policy before its updates, and noisy. A validation
is set against their mean over the 2 iterations before it and the 2 behind it (fewer at the ends),
so that they are about the same policy.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from vinejax.analysis.quality import slope_of
from vinejax.config import Config
from vinejax.report.curve import VALIDATION, updates_of

AROUND = 2  # iterations on each side of a validation
Line = Mapping[str, Any]


def curves(config: Config, lines: Sequence[Line], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Points at the validations, generalisation slope, and the test results.

    Costs are sums since reinforcement learning began: seconds without validation, tokens with the
    rollouts of values. `slope` is that of validation against training accuracy, least squares; None
    where there are fewer than two points.
    """
    sums = _sums(config, lines)
    points = [_point(lines, i, sums) for i, line in enumerate(lines) if VALIDATION in line]
    train, held_out = ([p[name] for p in points] for name in ("train_reward", "pass_at_1"))
    test = {
        name: {
            "pass_at_1": summary[f"{name}_pass_at_1"],
            "interval": summary.get(f"{name}_interval"),
        }
        for name in ("sft", "final", "best")
        if f"{name}_pass_at_1" in summary
    }
    slope = slope_of(train, held_out)
    return {"points": points, "slope": slope if np.isfinite(slope) else None, "test": test}


def _sums(config: Config, lines: Sequence[Line]) -> dict[str, list[float]]:
    """Costs up to the end of each iteration."""
    columns = {
        "episodes": [float(config.episodes)] * len(lines),
        "updates": updates_of(config, lines),
        "tokens_sampled": [line.get("tokens_sampled") or 0 for line in lines],
        "seconds": [
            (line.get("time/iteration") or 0.0) - (line.get("time/validation") or 0.0)
            for line in lines
        ],
    }
    return {name: list(accumulate(column)) for name, column in columns.items()}


def _point(lines: Sequence[Line], i: int, sums: Mapping[str, list[float]]) -> dict[str, Any]:
    around = lines[max(0, i + 1 - AROUND) : i + 1 + AROUND]
    line = lines[i]
    return {
        "iteration": line["iteration"],
        "pass_at_1": line[VALIDATION],
        "low": line.get(f"{VALIDATION}_low"),
        "high": line.get(f"{VALIDATION}_high"),
        "train_reward": _mean(around, "reward"),
        "kl_k1": _mean(around, "kl_k1"),
        "kl_k3": _mean(around, "kl_k3"),
        **{name: column[i] for name, column in sums.items()},
    }


def _mean(lines: Sequence[Line], name: str) -> float | None:
    found = [line[name] for line in lines if line.get(name) is not None]
    return float(np.mean(found)) if found else None
