"""States that a policy comes to, what a method takes their values to be, and their true values.

The truth of a state is the mean reward of many rollouts with a key of their own, from a prefill of
their own, under the rules of training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from vinejax import policy, rng, sampler
from vinejax.config import UserError
from vinejax.grading import GraderPool
from vinejax.tasks import Problem
from vinejax.train import trajectories
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories, is_cut_off, response_text

Assign = Callable[[int, Trajectories], Credit]


@dataclass(frozen=True)
class Prefix:
    """What is continued: a prompt, and the response so far."""

    problem: Problem
    tokens: np.ndarray  # int32, prompt and the response so far
    prompt_length: int


@dataclass(frozen=True)
class State(Prefix):
    """A state of some trajectory, and its estimate."""

    step: int  # its index in the trajectory; 0 is the prompt
    estimate: float  # its value as the method has it


def draw_states(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    count: int,
    assign: Assign,
    iteration: int = 0,
) -> list[State]:
    """`count` distinct states of as many iterations as that takes; all there are, if fewer.

    None at all if the method has no values. `assign` gives the estimates of an iteration's
    trajectories. The first iteration is `iteration`.
    Raises UserError if no response has a token.
    """
    found: dict[tuple[str, bytes], State] = {}
    before = -1
    while before < len(found) < count:
        before = len(found)
        batch = trajectories.collect(setup, weights, graders, iteration, 0, Clock())
        values = assign(iteration, batch).values
        if values is None:
            return []
        for m, tokens in enumerate(batch.tokens):
            prompt, problem = len(batch.prompts[m]), batch.problems[m]
            # States beyond the step cap have no estimate but the trajectory's own reward.
            starts = batch.states[m].starts[: _sampled(setup)]
            for step, start in enumerate(starts):
                prefix = tokens[: prompt + start]
                state = State(problem, prefix, prompt, step, float(values[m][step]))
                found.setdefault((problem.id, prefix.tobytes()), state)
        iteration += 1
    if not found:
        raise UserError(
            "no response has a token: there is no state to measure; raise sampling.max_new_tokens"
        )
    order = np.random.default_rng(setup.config.seed).permutation(len(found))[:count]
    everything = list(found.values())
    return [everything[i] for i in sorted(order)]


def _sampled(setup: Setup) -> int | None:
    """How many states of a trajectory have rollouts; None = all."""
    cap = setup.config.values.max_step
    return None if cap is None else cap + 1


def true_value(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    states: Sequence[Prefix],
    rollouts: int,
) -> np.ndarray:
    """Mean reward of `rollouts` fresh continuations of each state, under training's rules."""
    key = rng.phase_key(setup.config.seed, 0, "truth")
    return returns(setup, weights, graders, states, rollouts, key).mean(axis=1)


def returns(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    states: Sequence[Prefix],
    rollouts: int,
    key: jax.Array,
) -> np.ndarray:
    """Rewards, fp64 [states, rollouts], of fresh continuations under training's rules.

    Another `key` gives other continuations, independent of the first.
    """
    config = setup.config
    jobs, samples = continuations(setup, weights, states, rollouts, key)
    items, is_cut = [], []
    for j, (trunk, finish) in enumerate(zip(jobs.trunk, samples.finish, strict=True)):
        state = states[trunk]
        begun = state.tokens[state.prompt_length :]
        response = np.concatenate([begun, samples.tokens[j, : samples.length[j]]])
        text, _ = response_text(setup, response, int(finish))
        items.append((state.problem, text))
        is_cut.append(is_cut_off(setup, int(finish), text))
    here = setup.shards.here(len(states))
    own = items[here.start * rollouts : here.stop * rollouts]
    grading = graders.submit(own, strict=config.grading.grader == "strict")
    rewards = trajectories.grades_of([grading])[0]
    worst = config.sampling.truncation_reward
    return np.where(is_cut, worst, rewards).reshape(-1, rollouts)


def continuations(
    setup: Setup,
    weights: policy.DecodeWeights,
    states: Sequence[Prefix],
    count: int,
    key: jax.Array,
) -> tuple[sampler.Jobs, sampler.Samples]:
    """`count` samples from each state, state by state, from a prefill of their own."""
    config, sampling = setup.config, setup.config.sampling
    trunks = sampler.Trunks.of([s.tokens for s in states], [s.prompt_length for s in states])
    most = np.full(len(states), sampling.max_new_tokens)
    if config.values.budget == "remaining":
        most -= trunks.length - trunks.prompt_length
    budget = setup.budget(trunks.length, most, config.values.context)
    jobs = sampler.Jobs.at_ends(trunks, count, budget)
    samples = setup.shards.sample(
        weights,
        setup.model,
        trunks,
        jobs,
        setup.settings(sampling.temperature, sampling.top_p, sampling.top_k),
        key,
        layout=setup.layout(setup.shards.most(len(states)), count, sampling.max_new_tokens),
        wave=config.engine.wave or 512,
    )
    return jobs, samples
