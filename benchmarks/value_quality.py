"""Measure Monte Carlo values: K rollouts a state, as in training, against many independent ones.

python -m benchmarks.value_quality --run=DIR [--states=200] [--k=9] [--truth=256] [--seed=0]
                                   [--json]

The newest policy of a run answers training problems. The estimates are those that training would
have used: `credit.assign` with K rollouts from the KV that the scorer leaves. The truth of a state
is the mean reward of `truth` rollouts with another key, from a prefill of their own. Everything
follows from the run's policy and --seed; the run's folder is only read.

What the error should be. With rewards of 0 and 1 and the true value p, K times the estimate is X
~ Bin(K, p), `truth` = T times the truth is Y ~ Bin(T, p), and they are independent, so that

    E |X/K - Y/T|  =  sum over x, y of  Bin(x; K, p) Bin(y; T, p) |x/K - y/T|

which counts the truth's own error. Its mean over the states, each with its measured Y/T for p, is
`mae_predicted`; using the measured value makes it smaller by about 0.5 % at T = 256, 2 % at 64.
(For rewards between 0 and 1 the binomial is the widest case, an upper bound.)
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from benchmarks import command
from vinejax.config import UserError

if TYPE_CHECKING:
    from vinejax.grading import GraderPool
    from vinejax.policy import DecodeWeights
    from vinejax.train.setup import Setup
    from vinejax.train.truth import Assign

WITHIN = 0.05  # the paper's band of a good value (figure of value accuracy)


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    run: Path | None = None  # Folder of the run; its newest checkpoint is measured.
    states: int = 200  # Distinct states, drawn from those of fresh trajectories.
    k: int = 9  # Rollouts of an estimate.
    truth: int = 256  # Rollouts that it is compared with.
    seed: int = 0  # Of problems, trajectories, rollouts and the choice of states.
    json: bool = False  # Print the result as one JSON line.


def measure(
    setup: "Setup", weights: "DecodeWeights", graders: "GraderPool", states: int, truth: int
) -> dict[str, Any]:
    """Quality of the estimates with `setup.config.values.k` rollouts; see the module."""
    from vinejax.train.truth import draw_states, true_value

    drawn = draw_states(setup, weights, graders, states, by_rollouts(setup, weights, graders))
    true_values = true_value(setup, weights, graders, drawn, truth)
    estimates = np.array([s.estimate for s in drawn])
    step = np.array([s.step for s in drawn])
    return compare(estimates, true_values, step, setup.config.values.k, truth)


def by_rollouts(setup: "Setup", weights: "DecodeWeights", graders: "GraderPool") -> "Assign":
    """The estimates that training would use, of an iteration's trajectories."""
    from vinejax.train import credit
    from vinejax.train.clock import Clock

    return lambda iteration, batch: credit.assign(
        setup, weights, graders, iteration, batch, Clock()
    )


def compare(
    estimates: np.ndarray, truth: np.ndarray, step: np.ndarray, k: int, rollouts: int
) -> dict[str, Any]:
    """Numbers about `estimates` of k rollouts [S] against `truth` of so many rollouts [S].

    `correlation` is None where one side does not vary; `mae_constant` is the error of giving every
    state the mean truth; `mae_by_step` is None at an index without states.
    """
    error = np.abs(estimates - truth)
    mae, predicted = float(error.mean()), predicted_error(truth, k, rollouts)
    varies = np.ptp(estimates) > 0 and np.ptp(truth) > 0
    at = [step == i for i in range(int(step.max()) + 1)]
    return {
        "states": len(estimates),
        "k": k,
        "truth": rollouts,
        "value": float(truth.mean()),
        "mae": mae,
        "mae_predicted": predicted,
        "ratio": mae / predicted if predicted else None,
        "correlation": float(np.corrcoef(estimates, truth)[0, 1]) if varies else None,
        "correlation_predicted": predicted_correlation(truth, k, rollouts),
        "within_0.05": float((error <= WITHIN).mean()),
        "mae_constant": float(np.abs(truth - truth.mean()).mean()),
        "states_by_step": [int(here.sum()) for here in at],
        "mae_by_step": [float(error[here].mean()) if here.any() else None for here in at],
    }


def predicted_error(values: np.ndarray, k: int, rollouts: int) -> float:
    """Mean over states of E |X/k - Y/rollouts|, X and Y binomial with the state's value."""
    different, count = np.unique(values, return_counts=True)
    x, y = np.arange(k + 1), np.arange(rollouts + 1)
    distance = np.abs(x[:, None] / k - y / rollouts)
    of_estimate = stats.binom.pmf(x, k, different[:, None])
    of_truth = stats.binom.pmf(y, rollouts, different[:, None])
    expected = np.einsum("sx,sy,xy->s", of_estimate, of_truth, distance, optimize=True)
    return float((expected * count).sum() / count.sum())


def predicted_correlation(values: np.ndarray, k: int, rollouts: int) -> float | None:
    """The correlation that binomial noise on both sides leaves; None if values do not differ.

    var V / sqrt((var V + e/k) (var V + e/rollouts)) with e = mean of V (1 - V). The measured values
    vary by e/rollouts too much, and V (1 - V) comes out too small by a factor 1 - 1/rollouts.
    """
    if rollouts < 2:
        return None
    noise = float((values * (1 - values)).mean()) * rollouts / (rollouts - 1)
    spread = float(values.var()) - noise / rollouts
    if spread <= 0:
        return None
    return float(spread / np.sqrt((spread + noise / k) * (spread + noise / rollouts)))


def measure_run(flags: Flags) -> dict[str, Any]:
    """`measure` for the run that the flags name."""
    from vinejax.grading import GraderPool
    from vinejax.train import folder, load_policy
    from vinejax.train.learning import decode_weights
    from vinejax.train.setup import prepare

    if flags.run is None:
        raise UserError("--run=DIR is missing: give the folder of a run")
    for name in ("states", "k", "truth"):
        if getattr(flags, name) < 1:
            raise UserError(f"--{name} is {getattr(flags, name)}: give 1 or more")
    config = folder.read_config(flags.run)
    values = replace(config.values, k=flags.k)
    setup = prepare(replace(config, seed=flags.seed, values=values))[0]
    weights = decode_weights(setup, load_policy(flags.run)[1])
    workers = config.grading.workers or min(16, os.cpu_count() or 1)
    options, limit = config.task.arguments(), config.grading.limit
    with GraderPool(config.task.name, options, workers, limit) as graders:
        result = measure(setup, weights, graders, flags.states, flags.truth)
    return {"run": str(flags.run), "seed": flags.seed} | result


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    rows = {name: value for name, value in result.items() if not name.endswith("_by_step")}
    lines = [f"{name:<24} {_written(value)}" for name, value in rows.items()]
    by_step = zip(result["states_by_step"], result["mae_by_step"], strict=True)
    lines += ["step   states   mae"]
    lines += [f"{i:>4} {n:>8}   {_written(mae)}" for i, (n, mae) in enumerate(by_step)]
    return "\n".join(lines)


def _written(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "value_quality", __doc__, measure_run, table)


if __name__ == "__main__":
    sys.exit(main())
