"""Compare ways to measure values: rollouts and CPU time that they take, and how wrong they are.

python -m benchmarks.cheaper_values --run=DIR [--truth=256] [--iterations=2] [--seed=0] [--json]

The newest policy of a run answers training problems, with the run's prompts and samples. All ways
judge the same trajectories. The truth of a state is the mean reward of `truth` rollouts with
another key. Budgets are those of `values.budget=remaining` for all ways and for the truth, so that
they have the same thing to say. The run's folder is only read.

V error          mean absolute error over all states of all trajectories
step error       sum of (A' - A)^2 over sum of A^2, over the steps of all trajectories, where A' is
                 the step's advantage and A that by the true values; 1 is as bad as saying 0
CPU-s            of sampling and pooling, an iteration, when everything is compiled
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import command
from vinejax.config import Config, UserError

if TYPE_CHECKING:
    from vinejax.grading import GraderPool
    from vinejax.policy import DecodeWeights
    from vinejax.train.credit import Credit
    from vinejax.train.setup import Setup
    from vinejax.train.trajectories import Trajectories

POOL: dict[str, Any] = {"pool": True}
WAYS: dict[str, dict[str, Any]] = {
    "plain k=1": {"k": 1},
    "plain k=3": {"k": 3},
    "plain k=9": {"k": 9},
    "plain k=3, bisect:3": {"k": 3, "plan": "bisect:3"},
    "pool k=1": POOL | {"k": 1},
    "pool k=3": POOL | {"k": 3},
    "pool k=3, min_samples=2": POOL | {"k": 3, "min_samples": 2},
    "pool k=3, min_samples=3": POOL | {"k": 3, "min_samples": 3},
    "pool k=3, min_samples=2, skip:2": POOL | {"k": 3, "min_samples": 2, "plan": "skip:2"},
    "pool k=3, min_samples=3, bisect:3": POOL | {"k": 3, "min_samples": 3, "plan": "bisect:3"},
}


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    run: Path | None = None  # Folder of the run; its newest checkpoint is measured.
    truth: int = 256  # Rollouts of each state that the values are compared with.
    iterations: int = 2  # Batches of trajectories that are judged.
    seed: int = 0  # Of problems, trajectories and rollouts.
    json: bool = False  # Print the result as one JSON line.


def with_values(config: Config, **changes: Any) -> Config:
    """The configuration with plain values but for `changes`, in the budget that all ways share."""
    plain = {"pool": False, "min_samples": 0, "plan": "all", "deduplicate": True}
    shared = {"budget": "remaining", "context": config.sampling.context}
    return replace(config, values=replace(config.values, **(plain | shared | changes)))


def true_advantages(
    setup: "Setup",
    weights: "DecodeWeights",
    graders: "GraderPool",
    batch: "Trajectories",
    truth: int,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Values and step advantages of every trajectory's states from `truth` rollouts a state."""
    from vinejax import advantages, vine
    from vinejax.train.truth import State, true_value

    prompts, cap = [len(p) for p in batch.prompts], setup.config.values.max_step
    problems = [p.id for p in batch.problems]
    nodes = vine.nodes_of(batch.tokens, prompts, batch.states, problems, max_step=cap)
    states = [
        State(batch.problems[m], batch.tokens[m][:n], prompts[m], 0, 0.0)
        for m, n in zip(nodes.trajectory, nodes.prefix_length, strict=True)
    ]
    mean = true_value(setup, weights, graders, states, truth)
    values, steps = [], []
    for m, of_state in enumerate(nodes.of_state):
        own = np.zeros(batch.states[m].count, np.float32)
        own[: len(of_state)] = mean[of_state]
        own = np.asarray(advantages.cap(own, batch.reward[m], cap))
        values.append(own)
        steps.append(np.asarray(advantages.vine(own, batch.reward[m])) if len(own) else own)
    return values, steps


def measure(
    setup: "Setup", weights: "DecodeWeights", graders: "GraderPool", truth: int, iterations: int
) -> list[dict[str, Any]]:
    """A row for each of the WAYS, means over iterations; see the module."""
    from vinejax.train import credit, trajectories
    from vinejax.train.clock import Clock

    setup = replace(setup, config=with_values(setup.config))
    rows = {name: np.zeros(8) for name in WAYS}
    for iteration in range(iterations):
        batch = trajectories.collect(setup, weights, graders, iteration, 0, Clock())
        values, steps = (
            np.concatenate(x) for x in true_advantages(setup, weights, graders, batch, truth)
        )
        for name, changes in WAYS.items():
            own = replace(setup, config=with_values(setup.config, **changes))
            for _ in range(2):  # the first time may compile
                clock = Clock()
                given = credit.assign(own, weights, graders, iteration, batch, clock)
            rows[name] += _sums(given, clock.cpu_seconds["values"], values, steps)
    return [{"way": name} | _row(sums, iterations) for name, sums in rows.items()]


def _sums(given: "Credit", seconds: float, values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The numbers of an iteration that add up, in the order in which `_row` reads them."""
    assert given.nodes is not None
    assert given.rollouts is not None
    assert given.values is not None
    sums = (
        given.rollouts.sum(),
        given.counters.tokens_sampled,
        seconds,
        len(given.nodes.mean),
        np.asarray(given.nodes.count).sum(),
        np.abs(np.concatenate(given.values) - values).mean(),
        ((np.concatenate(given.step_advantages) - steps) ** 2).sum(),
        (steps**2).sum(),
    )
    return np.array(sums, np.float64)


def _row(sums: np.ndarray, iterations: int) -> dict[str, Any]:
    rollouts, tokens, seconds, states, samples, error, squares, signal = sums.tolist()
    return {
        "rollouts": rollouts / iterations,
        "tokens": tokens / iterations,
        "cpu_seconds": seconds / iterations,
        "states": states / iterations,
        "samples_per_state": samples / max(states, 1),
        "pooled_share": 1 - rollouts / samples if samples else 0.0,
        "value_error": error / iterations,
        "step_error": squares / signal if signal else None,
    }


def measure_run(flags: Flags) -> dict[str, Any]:
    """`measure` for the run that the flags name."""
    from vinejax.grading import GraderPool
    from vinejax.train import folder, load_policy
    from vinejax.train.learning import decode_weights
    from vinejax.train.setup import prepare

    if flags.run is None:
        raise UserError("--run=DIR is missing: give the folder of a run")
    for name in ("truth", "iterations"):
        if getattr(flags, name) < 1:
            raise UserError(f"--{name} is {getattr(flags, name)}: give 1 or more")
    config = replace(folder.read_config(flags.run), seed=flags.seed, algorithm="vineppo")
    setup = prepare(config)[0]
    weights = decode_weights(setup, load_policy(flags.run)[1])
    workers = config.grading.workers or min(16, os.cpu_count() or 1)
    options, limit = config.task.arguments(), config.grading.limit
    with GraderPool(config.task.name, options, workers, limit) as graders:
        rows = measure(setup, weights, graders, flags.truth, flags.iterations)
    return {"run": str(flags.run), "seed": flags.seed, "truth": flags.truth, "ways": rows}


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = [f"{'':<34} rollouts  tokens  CPU-s  states  samples  pooled  V error  step error"]
    for row in result["ways"]:
        step = "-" if row["step_error"] is None else f"{row['step_error']:.2f}"
        lines.append(
            f"{row['way']:<34} {row['rollouts']:>8.0f}{row['tokens']:>8.0f}"
            f"{row['cpu_seconds']:>7.2f}{row['states']:>8.0f}{row['samples_per_state']:>9.1f}"
            f"{row['pooled_share']:>8.2f}{row['value_error']:>9.3f}{step:>12}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "cheaper_values", __doc__, measure_run, table)


if __name__ == "__main__":
    sys.exit(main())
