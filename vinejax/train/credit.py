"""The second half of an iteration: Monte Carlo values of intermediate states, step advantages.

Trajectories are taken in waves. A wave is scored (old log-probabilities out, KV kept), its vines
grow from that KV, and are graded while the next wave is sampled.
"""

from dataclasses import dataclass, field

import numpy as np

from vinejax import advantages, policy, rng, sampler, vine
from vinejax.grading import GraderPool, Grading
from vinejax.train.clock import Clock
from vinejax.train.scoring import Scored, score
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories, is_cut_off, response_text


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
    nodes: vine.Values | None = None  # measured values of all distinct states
    counters: sampler.Counters = field(default_factory=sampler.Counters)  # of the vines


@dataclass(frozen=True)
class _Wave:
    """The rollouts of one wave, being graded."""

    first: int  # trajectory
    nodes: vine.Nodes
    truncated: np.ndarray  # bool [P, K]
    grading: Grading


def assign(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    iteration: int,
    batch: Trajectories,
    clock: Clock,
) -> Credit:
    """Values and advantages of all trajectories, and their scores under the sampling policy."""
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
            )
            scored.append(old)
        with clock("values"):
            wave, samples = _grow(setup, weights, graders, iteration, batch, members, cache)
            counters += samples
            waves.append(wave)
    with clock("grading"):
        worst = setup.config.sampling.truncation_reward
        node_values = [_judge(wave, worst) for wave in waves]
    values, steps, spread = _spread(setup, iteration, batch, waves, node_values)
    nodes = vine.Values(*(np.concatenate(column) for column in zip(*node_values, strict=True)))
    return Credit(steps, spread, Scored.joined(scored), values, nodes=nodes, counters=counters)


def _grow(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    iteration: int,
    batch: Trajectories,
    members: range,
    cache: policy.Cache | None,
) -> tuple[_Wave, sampler.Counters]:
    """Samples K continuations of every state of the wave's trajectories, and has them graded."""
    config = setup.config
    tokens = batch.tokens[members.start : members.stop]
    prompt_length = [len(batch.prompts[m]) for m in members]
    nodes = vine.nodes_of(
        tokens,
        prompt_length,
        [batch.states[m] for m in members],
        [batch.problems[m].id for m in members],
        deduplicate=config.values.deduplicate,
        max_step=config.values.max_step,
    )
    k = config.values.k
    most = np.full(len(nodes.trajectory), config.sampling.max_new_tokens)
    if config.values.budget == "remaining":
        most -= nodes.prefix_length - np.array(prompt_length)[nodes.trajectory]
    node = np.repeat(np.arange(len(nodes.trajectory)), k)
    prefix = nodes.prefix_length[node]
    jobs = sampler.Jobs.of(
        nodes.trajectory[node],
        prefix,
        np.tile(np.arange(k), len(nodes.trajectory)),
        setup.budget(prefix, most[node], config.values.context),
        nodes.copy[node],
    )
    samples = sampler.sample(
        weights,
        setup.model,
        sampler.Trunks.of(tokens, prompt_length),
        jobs,
        setup.settings(config.sampling.temperature, config.sampling.top_p, config.sampling.top_k),
        rng.phase_key(config.seed, iteration, "values"),
        layout=setup.layout(setup.wave, 16, config.sampling.max_new_tokens),
        cache=cache,
    )
    texts, cut = [], []
    for j in range(len(jobs)):
        m = members[0] + int(jobs.trunk[j])
        response = tokens[jobs.trunk[j]][len(batch.prompts[m]) : prefix[j]]
        whole = np.concatenate([response, samples.tokens[j, : samples.length[j]]])
        text, _ = response_text(setup, whole, samples.finish[j])
        texts.append((batch.problems[m], text))
        cut.append(is_cut_off(setup, samples.finish[j], text))
    grading = graders.submit(texts, iteration, "values", strict=config.grading.grader == "strict")
    return _Wave(members[0], nodes, np.array(cut, bool).reshape(-1, k), grading), samples.counters


def _judge(wave: _Wave, truncation_reward: float) -> vine.Values:
    """The values of a wave's nodes, once its rollouts are graded."""
    rewards = np.array([v.grade for v in wave.grading.result()], np.float32)
    return vine.values(
        rewards.reshape(wave.truncated.shape),
        wave.truncated,
        truncation_reward=truncation_reward,
    )


def _spread(
    setup: Setup,
    iteration: int,
    batch: Trajectories,
    waves: list[_Wave],
    node_values: list[vine.Values],
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Values per state, advantages per state and per token, of every trajectory."""
    shuffle = (
        np.random.default_rng([setup.config.seed, iteration])
        if setup.config.advantages.permute
        else None
    )
    state_values, step_advantages, token_advantages = [], [], []
    for wave, values in zip(waves, node_values, strict=True):
        for m, of_state in enumerate(wave.nodes.of_state, start=wave.first):
            states, reward = batch.states[m], batch.reward[m]
            sampled = np.zeros(states.count, np.float32)
            sampled[: len(of_state)] = values.mean[of_state]
            own = advantages.cap(sampled, reward, setup.config.values.max_step)
            credit = advantages.vine(own, reward) if states.count else own
            if shuffle is not None:
                credit = advantages.permute(credit, shuffle)
            state_values.append(own)
            step_advantages.append(credit)
            token_advantages.append(
                advantages.spread(credit, states.of_token) if states.count else own
            )
    return state_values, step_advantages, token_advantages
