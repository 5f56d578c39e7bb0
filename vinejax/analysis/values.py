"""Predicted against true values of the states that a checkpoint's policy comes to.

States are where training has them: the prompt and what follows each step but the last one, of the
trajectories that the next iteration would sample (the paper's choice). RLOO's and GRPO's baselines
count as predictions, too (paper, appendix D.2): the mean of the prompt's other returns, and of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from vinejax.analysis import quality
from vinejax.analysis.predictors import ESTIMATES, TRUTH, Policy, by_rollouts, counts
from vinejax.train import trajectories
from vinejax.train.clock import Clock
from vinejax.train.truth import Prefix

# States are drawn from so many times as many, so that they come from more problems.
POOL = 4

Record = dict[str, Any]


@dataclass(frozen=True)
class Reached(Prefix):
    """A state of a trajectory, and what the prompt's samples say about it."""

    step: int  # its index in the trajectory; 0 is the prompt
    group_mean: float  # of the returns of all samples of the prompt, this one included
    leave_one_out: float | None  # of the others; None where there are none


def reached(policy: Policy, count: int) -> list[Reached]:
    """Distinct states, `count` or more, of the policy's trajectories, in an order by chance.

    Fewer where further iterations show no new ones.
    """
    setup, iteration, before = policy.setup, policy.iteration, -1
    found: dict[tuple[str, bytes], Reached] = {}
    while before < len(found) < count:
        before = len(found)
        batch = trajectories.collect(setup, policy.weights, policy.graders, iteration, 0, Clock())
        for state in _states(batch, setup.config.samples, setup.config.values.max_step):
            found.setdefault((state.problem.id, state.tokens.tobytes()), state)
        iteration += 1
    everything = list(found.values())
    order = np.random.default_rng([setup.config.seed, policy.iteration]).permutation(len(found))
    return [everything[i] for i in order]


def _states(batch: trajectories.Trajectories, samples: int, max_step: int | None) -> list[Reached]:
    """All states that training measures, of every trajectory."""
    found = []
    for m, (tokens, states) in enumerate(zip(batch.tokens, batch.states, strict=True)):
        group = batch.reward[m - m % samples :][:samples].astype(np.float64)
        others = (group.sum() - batch.reward[m]) / (samples - 1) if samples > 1 else None
        prompt = len(batch.prompts[m])
        for step, start in enumerate(states.starts[: None if max_step is None else max_step + 1]):
            found.append(
                Reached(
                    batch.problems[m],
                    tokens[: prompt + start],
                    prompt,
                    step,
                    float(group.mean()),
                    None if others is None else float(others),
                )
            )
    return found


def sample(policy: Policy, pool: list[Reached], count: int, rollouts: int) -> Record:
    """Truth and predictions of the first `count` states of the pool, as columns."""
    states, k = pool[:count], policy.setup.config.values.k
    true = policy.returns(states, rollouts, TRUTH)
    predicted = by_rollouts(policy.returns(states, max(counts(k)), ESTIMATES), k)
    if policy.critic is not None and states:
        predicted["critic"] = policy.critic(states)
    predicted["group_mean"] = np.array([s.group_mean for s in states])
    if all(s.leave_one_out is not None for s in states):
        predicted["leave_one_out"] = np.array([s.leave_one_out for s in states])
    return {
        "problem": [s.problem.id for s in states],
        "step": [s.step for s in states],
        "prefix_tokens": [len(s.tokens) for s in states],
        "truth": true.mean(axis=1),
        "predicted": predicted,
    }


def summarise(record: Record) -> Record:
    """Metrics of every predictor at one checkpoint, and of the mean true value as a constant."""
    truth, step = np.array(record["truth"], np.float64), np.array(record["step"], int)
    if not len(truth):
        return {"states": 0, "predictors": {}}
    columns = {n: np.array(c, np.float64) for n, c in record["predicted"].items()}
    columns["constant"] = np.full(len(truth), truth.mean())
    return {
        "states": len(truth),
        "problems": len(set(record["problem"])),
        "value": float(truth.mean()),
        "value_std": float(truth.std()),
        "extreme_share": float(((truth <= 0.05) | (truth >= 0.95)).mean()),
        "predictors": {
            name: quality.measure(column, truth, step, record["problem"])
            for name, column in columns.items()
        },
    }
