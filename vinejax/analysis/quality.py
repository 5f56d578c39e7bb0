"""How good predictions are: numbers about two columns, and their intervals over problems. NumPy.

Definitions are those of the VinePPO paper (its analysis of value prediction) where it has them.
`truth` is a mean of rollouts itself, so every error here counts the truth's own, too: with 256
rollouts its standard deviation is 0.031 at most.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

WITHIN = 0.05  # the paper's band of a good value
DRAWS, CONFIDENCE = 1_000, 0.95  # of the bootstrap
BINS = 10  # of calibration
_ROUNDING = 1e-9  # |0.55 - 0.5| is 0.05, not more

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # predicted, truth, step


def within(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> float:
    """Share of states with |predicted - truth| <= 0.05: the paper's accuracy."""
    return float((np.abs(predicted - truth) <= WITHIN + _ROUNDING).mean())


def mean_error(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> float:
    """Mean absolute error."""
    return float(np.abs(predicted - truth).mean())


def bias(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> float:
    """Mean of predicted - truth."""
    return float((predicted - truth).mean())


def correlation(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> float:
    """Pearson's; NaN where one side does not vary."""
    if np.ptp(predicted) < _ROUNDING or np.ptp(truth) < _ROUNDING:
        return float("nan")
    return float(np.corrcoef(predicted, truth)[0, 1])


def explained_variance(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> float:
    """1 - Var(truth - predicted) / Var(truth); 0 for a constant, NaN where the truth is one."""
    spread = float(np.var(truth))
    if spread < _ROUNDING**2:
        return float("nan")
    return 1 - float(np.var(truth - predicted)) / spread


def slope_of(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Slope of the least squares line of y over x; NaN where x does not vary."""
    apart = np.asarray(x, np.float64) - np.mean(x) if len(x) else np.zeros(0)
    spread = float((apart**2).sum())
    return float((apart * np.asarray(y)).sum() / spread) if spread else float("nan")


def slope(
    predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"], step: Int[np.ndarray, "S"]
) -> float:
    """By how much the absolute error grows a step (least squares); NaN with one step index."""
    return slope_of(step, np.abs(predicted - truth))


# name -> of (predicted, truth, step)
METRICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], float]] = {
    "within_0.05": lambda p, t, _: within(p, t),
    "mae": lambda p, t, _: mean_error(p, t),
    "bias": lambda p, t, _: bias(p, t),
    "correlation": lambda p, t, _: correlation(p, t),
    "explained_variance": lambda p, t, _: explained_variance(p, t),
    "error_slope": slope,
}


def measure(
    predicted: Float[np.ndarray, "S"],
    truth: Float[np.ndarray, "S"],
    step: Int[np.ndarray, "S"],
    problem: Sequence[str],
) -> dict[str, Any]:
    """All metrics of a predictor as {value, low, high}, its error by step, its calibration."""
    columns = predicted, truth, step
    return {
        **{name: with_interval(statistic, columns, problem) for name, statistic in METRICS.items()},
        "by_step": by_step(predicted, truth, step, problem),
        "calibration": calibration(predicted, truth),
    }


def by_step(
    predicted: Float[np.ndarray, "S"],
    truth: Float[np.ndarray, "S"],
    step: Int[np.ndarray, "S"],
    problem: Sequence[str],
) -> list[dict[str, Any]]:
    """Mean absolute error of the states at each step index, 0 being the prompt."""
    names, found = np.asarray(problem), []
    for index in np.unique(step):
        here = step == index
        columns = predicted[here], truth[here]
        numbers = with_interval(mean_error, columns, names[here].tolist())
        found.append({"step": int(index), "states": int(here.sum())} | numbers)
    return found


def calibration(predicted: Float[np.ndarray, "S"], truth: Float[np.ndarray, "S"]) -> dict[str, Any]:
    """Mean prediction and mean truth in tenths of the predictions, and their mean distance.

    What is predicted below 0 or from 1 on is in the first or the last bin. `error` is the expected
    calibration error: distances weighted by the states in a bin.
    """
    at = np.clip((predicted * BINS + _ROUNDING).astype(int), 0, BINS - 1)
    bins = [
        {
            "states": int((at == i).sum()),
            "predicted": float(predicted[at == i].mean()),
            "truth": float(truth[at == i].mean()),
        }
        for i in np.unique(at)
    ]
    distance = sum(b["states"] * abs(b["predicted"] - b["truth"]) for b in bins)
    return {"error": distance / len(predicted), "bins": bins}


def with_interval(
    statistic: Callable[..., float],
    columns: Sequence[np.ndarray],
    problem: Sequence[str],
) -> dict[str, float | None]:
    """`statistic` of the columns, and where it lies for other problems (95 %, percentiles).

    States of one problem resemble each other, so problems are drawn with replacement, each with all
    its states: 1,000 times, the same ones in every call. None is what is not defined; an interval
    is not where there is one problem.
    """
    value = statistic(*columns)
    names, at = np.unique(np.asarray(problem), return_inverse=True)
    if len(names) < 2:
        return {"value": _number(value), "low": None, "high": None}
    members = [np.flatnonzero(at == i) for i in range(len(names))]
    random, found = np.random.default_rng(0), []
    for chosen in random.integers(len(names), size=(DRAWS, len(names))):
        rows = np.concatenate([members[i] for i in chosen])
        found.append(statistic(*(column[rows] for column in columns)))
    kept = np.array([x for x in found if np.isfinite(x)])
    if not len(kept):
        return {"value": _number(value), "low": None, "high": None}
    low, high = np.quantile(kept, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {"value": _number(value), "low": float(low), "high": float(high)}


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def as_text(found: Mapping[str, float | None] | None, digits: str = ".3f") -> str:
    """The value and its interval, as far as they are known."""
    if found is None or found["value"] is None:
        return "-"
    value, low, high = (found[name] for name in ("value", "low", "high"))
    if low is None:
        return format(value, digits)
    end = "?" if high is None else format(high, digits)
    return f"{value:{digits}} ({low:{digits}} to {end})"
