"""The second half of an iteration: Monte Carlo values of intermediate states, step advantages.

Each device takes its share of the trajectories in waves. A wave is scored (old log-probabilities
out, KV kept), its vines grow from that KV, and are graded while the next wave is sampled. Then the
processes tell each other what they found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vinejax import advantages, policy, sampler, vine
from vinejax.grading import GraderPool
from vinejax.train import exchange
from vinejax.train.clock import Clock
from vinejax.train.scoring import Scored, score
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories
from vinejax.train.vines import Continuation, Vines


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
    # Rollouts from each state, of the few trajectories (their numbers) whose texts are kept.
    continuations: dict[int, list[list[Continuation]]] = field(default_factory=dict)
    reference: Scored | None = None  # by the reference policy, where it has been scored already
    counters: sampler.Counters = field(default_factory=sampler.Counters)  # of the vines


class _Wave(NamedTuple):
    """Some trajectories of a shard, their vines being graded."""

    old: Scored
    vines: Vines
    counters: sampler.Counters


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
    samples = setup.config.samples
    tokens, width = batch.tokens, max(len(t) for t in batch.tokens)

    def work(weights: policy.DecodeWeights, prompts: range, leads: bool) -> list[_Wave]:
        # Shards work at the same time: what the first one needs is what all need, about.
        own, waves = clock if leads else Clock(), []
        last = prompts.stop * samples
        for first in range(prompts.start * samples, last, setup.wave):
            members = range(first, min(first + setup.wave, last))
            with own("scoring"):
                old, cache = score(
                    weights,
                    setup.model,
                    [tokens[m] for m in members],
                    setup.config.sampling.temperature,
                    width,
                    keep_cache=True,
                    prompt_lengths=[len(batch.prompts[m]) for m in members],
                )
            with own("values"):
                vines = Vines(setup, weights, graders, iteration, batch, members)
                waves.append(_Wave(old, vines, vines.grow(cache)))
            del cache  # before the next wave has its own
        return waves

    parts = setup.shards.run(work, weights, len(tokens) // samples)
    waves = [wave for part in parts for wave in part]
    reference = None if meanwhile is None else meanwhile()
    with clock("grading"):
        measured = [wave.vines.measured() for wave in waves]
        found = exchange.all_values(measured)
    values, steps, spread = _spread(setup, iteration, batch, found.values)
    return Credit(
        steps,
        spread,
        exchange.all_scores([wave.old for wave in waves], width),
        values,
        nodes=found.nodes,
        rollouts=found.rollouts,
        left_out=found.left_out,
        continuations=found.continuations,
        reference=reference,
        counters=exchange.all_counters([wave.counters for wave in waves]),
    )


def _spread(
    setup: Setup, iteration: int, batch: Trajectories, values: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Values per state, advantages per state and per token, of every trajectory."""
    shuffle = (
        np.random.default_rng([setup.config.seed, iteration])
        if setup.config.advantages.permute
        else None
    )
    state_values, step_advantages, token_advantages = [], [], []
    for m, known in enumerate(values):
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
