"""Which of several next steps is best: does a predictor find it (paper, "top action")?

From a state that has a step before it and one behind it, 5 continuations are sampled under
training's rules and cut into steps anew; their next steps, equal ones once, are the alternatives.
Left out, as in the authors' code, are continuations whose cut has no boundary at the state and
states with too few alternatives (below 3 there); and steps that end the response, behind which
nothing is left to predict. A state counts if the true values of its alternatives differ by more
than 0.1.

Ties, in words: among predictions that share the maximum a predictor chooses by chance, so it gets
the share of them that are truly best. A constant gets exactly the chance level, which is the share
of truly best alternatives.
"""

from typing import Any

import numpy as np

from vinejax import sampler
from vinejax.analysis import quality
from vinejax.analysis.predictors import Policy, by_rollouts, counts
from vinejax.analysis.values import Reached, Record
from vinejax.config import every_n_tokens
from vinejax.train import truth
from vinejax.train.setup import Setup
from vinejax.train.trajectories import response_text
from vinejax.train.truth import Prefix
from vinejax.vine import states_every, steps_of_tokens

SAMPLED = 5  # next steps of a state
SPREAD = 0.1  # between the best and the worst alternative
RANKED = 2  # so many times as many states are ranked as are wanted: some have no spread
STEPS, TRUTH, ESTIMATES = (f"analysis-actions-{name}" for name in ("steps", "truth", "estimates"))
_SAME = 1e-9


def sample(policy: Policy, pool: list[Reached], count: int, least: int, rollouts: int) -> Record:
    """Alternatives, `least` or more each, of up to twice `count` states, and their values."""
    inner = [s for s in pool if s.step > 0]
    found = [
        (s, own) for s, own in zip(inner, alternatives(policy, inner, least), strict=True) if own
    ]
    found = found[: RANKED * count]
    flat = [prefix for _, own in found for prefix in own]
    k = policy.setup.config.values.k
    true = policy.returns(flat, rollouts, TRUTH).mean(axis=1)
    predicted = by_rollouts(policy.returns(flat, max(counts(k)), ESTIMATES), k)
    if policy.critic is not None and flat:
        predicted["critic"] = policy.critic(flat)
    sizes = [len(own) for _, own in found]
    return {
        "tried": len(inner),
        "problem": [s.problem.id for s, _ in found],
        "step": [s.step for s, _ in found],
        "truth": _rows(true, sizes),
        "predicted": {name: _rows(column, sizes) for name, column in predicted.items()},
    }


def _rows(column: np.ndarray, sizes: list[int]) -> list[list[float]]:
    """A column of all alternatives as one list a state."""
    ends = np.cumsum(sizes, dtype=int).tolist()
    return [column[end - size : end].tolist() for end, size in zip(ends, sizes, strict=True)]


def alternatives(policy: Policy, states: list[Reached], least: int) -> list[list[Prefix]]:
    """The distinct next steps of each state, behind the state; none where fewer than `least`."""
    if not states:
        return []
    setup = policy.setup
    jobs, samples = truth.continuations(setup, policy.weights, states, SAMPLED, policy.key(STEPS))
    found: list[dict[bytes, Prefix]] = [{} for _ in states]
    for j, trunk in enumerate(jobs.trunk):
        grown = next_step(setup, states[trunk], samples, j)
        if grown is not None:
            own = Prefix(states[trunk].problem, grown, states[trunk].prompt_length)
            found[trunk].setdefault(grown.tobytes(), own)
    return [[own[key] for key in sorted(own)] if len(own) >= least else [] for own in found]


def next_step(setup: Setup, state: Prefix, samples: sampler.Samples, j: int) -> np.ndarray | None:
    """The state's tokens and those of the next step of sample j.

    None where the response ends with that step, or where no step begins at the state.
    """
    begun = state.tokens[state.prompt_length :]
    response = np.concatenate([begun, samples.tokens[j, : samples.length[j]]])
    text, length = response_text(setup, response, int(samples.finish[j]))
    starts = setup.tokenizer.char_starts(response[:length].tolist())
    cut = steps_of_tokens(setup.task.split_steps(text), starts)
    places = states_every(cut, every_n_tokens(setup.config.values.states)).starts.tolist()
    if len(begun) not in places[:-1]:
        return None
    end = places[places.index(len(begun)) + 1]
    return np.concatenate([state.tokens[: state.prompt_length], response[:end]])


def summarise(record: Record) -> Record:
    """Shares of states whose best alternative a predictor finds, with intervals over problems."""
    truths = [np.array(row, np.float64) for row in record["truth"]]
    kept = [i for i, row in enumerate(truths) if np.ptp(row) > SPREAD]
    result: dict[str, Any] = {
        "tried": record["tried"],
        "with_alternatives": len(truths),
        "with_spread": len(kept),
    }
    if not kept:
        return result | {"chance": None, "predictors": {}}
    problem = [record["problem"][i] for i in kept]
    rows = {name: [column[i] for i in kept] for name, column in record["predicted"].items()}
    rows["constant"] = [[0.0] * len(truths[i]) for i in kept]
    shares = {
        name: np.array([found_share(p, truths[i]) for p, i in zip(column, kept, strict=True)])
        for name, column in rows.items()
    }
    return result | {
        "alternatives": float(np.mean([len(truths[i]) for i in kept])),
        "chance": float(shares["constant"].mean()),
        "predictors": {
            name: quality.with_interval(lambda x: float(x.mean()), [own], problem)
            for name, own in shares.items()
        },
    }


def found_share(predicted: Any, truth: np.ndarray) -> float:
    """Probability that a choice by `predicted`, ties by chance, is a truly best alternative."""
    chosen = np.asarray(predicted) >= np.max(predicted) - _SAME
    best = truth >= truth.max() - _SAME
    return float(best[chosen].mean())
