"""The second half of an iteration: Monte Carlo values of intermediate states, step advantages.

Trajectories are taken in waves. A wave is scored (old log-probabilities out, KV kept), its vines
grow from that KV, and are graded while the next wave is sampled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from vinejax import advantages, policy, sampler, vine
from vinejax.grading import GraderPool
from vinejax.train.clock import Clock
from vinejax.train.scoring import Scored, score
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories
from vinejax.train.vines import Measured, Vines


@dataclass(frozen=True)
class Credit:
    """What each of a trajectory's tokens gets, and what that was computed from.

    One array a trajectory. What a method does not have is None.
    """

    step_advantages: list[np.ndarray]  # fp32 [states], of the first token of each state
    token_advantages: list[np.ndarray]  # fp32 [T]
    old: Scored  # by the policy that sampled
    values: list[np.ndarray] | None = None  # fp32 [states], beyond the step cap filled in
    token_values: list[np.ndarray] | None = None  # fp32 [T], a critic's, before each token
    nodes: vine.Values | None = None  # measured values of all distinct states that have one
    rollouts: np.ndarray | None = None  # int [P], launched at each of these
    left_out: int = 0  # distinct states without a measured value
    reference: Scored | None = None  # by the reference policy, where it has been scored already
    counters: sampler.Counters = field(default_factory=sampler.Counters)  # of the vines


def assign(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    iteration: int,
    batch: Trajectories,
    clock: Clock,
    meanwhile: Callable[[], Scored] | None = None,
) -> Credit:
    """Values and advantages of all trajectories, and their scores under the sampling policy.

    `meanwhile` scores the trajectories under the reference policy; the device does so while the
    last rollouts are being graded.
    """
    tokens = batch.tokens
    width = max(len(t) for t in tokens)
    counters, waves, scored = sampler.Counters(), [], []
    for first in range(0, len(tokens), setup.wave):
        members = range(first, min(first + setup.wave, len(tokens)))
        with clock("scoring"):
            temperature = setup.config.sampling.temperature
            old, cache = score(
                weights,
                setup.model,
                [tokens[m] for m in members],
                temperature,
                width,
                keep_cache=True,
                prompt_lengths=[len(batch.prompts[m]) for m in members],
            )
            scored.append(old)
        with clock("values"):
            wave = Vines(setup, weights, graders, iteration, batch, members)
            counters += wave.grow(cache)
            waves.append(wave)
    reference = None if meanwhile is None else meanwhile()
    with clock("grading"):
        measured = [wave.measured() for wave in waves]
    values, steps, spread = _spread(setup, iteration, batch, measured)
    columns = zip(*(m.nodes for m in measured), strict=True)
    return Credit(
        steps,
        spread,
        Scored.joined(scored),
        values,
        nodes=vine.Values(*(np.concatenate(column) for column in columns)),
        rollouts=np.concatenate([m.rollouts for m in measured]),
        left_out=sum(m.left_out for m in measured),
        reference=reference,
        counters=counters,
    )


def _spread(
    setup: Setup, iteration: int, batch: Trajectories, measured: list[Measured]
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Values per state, advantages per state and per token, of every trajectory."""
    shuffle = (
        np.random.default_rng([setup.config.seed, iteration])
        if setup.config.advantages.permute
        else None
    )
    state_values, step_advantages, token_advantages = [], [], []
    for m, known in enumerate(values for wave in measured for values in wave.values):
        states, reward = batch.states[m], batch.reward[m]
        sampled = np.zeros(states.count, np.float32)
        sampled[: len(known)] = known
        own = advantages.cap(sampled, reward, setup.config.values.max_step)
        credit = advantages.vine(own, reward) if states.count else own
        if shuffle is not None:
            credit = advantages.permute(credit, shuffle)
        state_values.append(own)
        step_advantages.append(credit)
        token_advantages.append(advantages.spread(credit, states.of_token) if states.count else own)
    return state_values, step_advantages, token_advantages
