"""Cheaper values: pooling, fewer rollouts and states left out, on a policy that can be listed."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import (
    CONFIG,
    PROMPT_LENGTH,
    STOP,
    Exact,
    iterate,
    iterations,
    setup_of,
    weights,
    with_values,
)
from vinejax import vine
from vinejax.arrays import Finish
from vinejax.grading import GraderPool
from vinejax.train import credit, measures
from vinejax.train.clock import Clock

POOL = {"pool": True, "budget": "remaining", "context": CONFIG.sampling.context}
FILL = POOL | {"min_samples": 3}
PLANS = [{"plan": "skip:2"}, {"plan": "bisect:2"}, FILL | {"plan": "skip:2"}]
CHEAPER = [POOL, FILL, *PLANS]


def nodes_of(batch):
    """The distinct states of an iteration, in the order of `Credit.nodes` if none is left out."""
    return vine.nodes_of(
        batch.tokens, [len(p) for p in batch.prompts], batch.states, [p.id for p in batch.problems]
    )


def by_state(batch, given):
    """(problem id, response so far), value and number of samples, of every distinct state."""
    nodes = nodes_of(batch)
    assert len(nodes.trajectory) == len(given.nodes.mean)
    for i, (m, n) in enumerate(zip(nodes.trajectory, nodes.prefix_length, strict=True)):
        begun = batch.tokens[m][len(batch.prompts[m]) : n]
        yield (batch.problems[m].id, tuple(begun.tolist())), given.nodes.mean[i], i


@pytest.fixture(scope="module")
def exact():
    return Exact(setup_of(with_values(**POOL)))


@pytest.mark.parametrize("states", ["step", "token"])
@pytest.mark.parametrize("changes", [POOL, FILL], ids=["pool", "min_samples"])
def test_pooled_values_are_unbiased(exact, changes, states):
    _, runs = iterations(states=states, **changes)
    error, variance = defaultdict(float), defaultdict(float)
    for batch, given in runs:
        for (problem, response), value, i in by_state(batch, given):
            most = CONFIG.sampling.max_new_tokens - len(response)
            mean, square = exact.moments(problem, response, most, CONFIG.sampling.context)
            error[problem, response] += value - mean
            # Given how many samples a state has, they are independent.
            variance[problem, response] += (square - mean**2) / given.nodes.count[i]
    for state, v in variance.items():
        if v < 1e-9:  # every continuation has the same reward
            assert abs(error[state]) < 1e-4
    scores = [error[s] / np.sqrt(v) for s, v in variance.items() if v > 0.1]
    assert len(scores) >= 8
    assert np.abs(scores).max() < 3
    assert 0.4 < np.std(scores) < 1.6
    total = sum(error.values()) / np.sqrt(sum(variance.values()))
    assert abs(total) < 3


def assigned(setup, batch):
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        return credit.assign(setup, weights(), graders, 0, batch, Clock())


@pytest.mark.parametrize("changes", [POOL, FILL], ids=["pool", "min_samples"])
def test_no_value_of_a_trajectory_depends_on_its_own_return(changes):
    setup = setup_of(with_values(states="token", **changes))
    batch, given = iterate(setup)
    others = 0
    for m in range(0, len(batch.reward), 3):
        reward = batch.reward.copy()
        reward[m] = 1 - reward[m]
        changed = assigned(setup, replace(batch, reward=reward))
        assert_array_equal(changed.values[m], given.values[m])
        others += sum(
            (a != b).any() for a, b in zip(changed.values, given.values, strict=True) if len(a)
        )
    assert others


@pytest.mark.parametrize("changes", CHEAPER)
@pytest.mark.parametrize("max_step", [None, 1])
def test_advantages_telescope_to_reward_minus_the_value_of_the_prompt(changes, max_step):
    _, runs = iterations(states="token", max_step=max_step, count=2, **changes)
    for batch, given in runs:
        for m, (values, steps) in enumerate(zip(given.values, given.step_advantages, strict=True)):
            assert len(values) == len(steps) == batch.states[m].count
            if len(values):
                assert_allclose(steps.sum(), batch.reward[m] - values[0], atol=1e-6)
                assert_allclose(steps[-1], batch.reward[m] - values[-1], atol=1e-6)
            if max_step is not None:
                assert_array_equal(values[max_step + 1 :], batch.reward[m])


class Recorder:
    """What `sampler.sample` was asked for and gave, call by call."""

    def __init__(self, monkeypatch):
        self.calls = []
        original = credit.sampler.sample

        def sample(weights, config, trunks, jobs, *args, **kwargs):
            samples = original(weights, config, trunks, jobs, *args, **kwargs)
            self.calls.append((trunks, jobs, samples))
            return samples

        monkeypatch.setattr(credit.sampler, "sample", sample)


def whole(call, j):
    """The prompt and all that follows it in sample j."""
    trunks, jobs, samples = call
    begun = trunks.tokens[jobs.trunk[j]][: jobs.prefix_length[j]]
    return [*begun.tolist(), *samples.tokens[j, : samples.length[j]].tolist()]


def graded(call, batch):
    """Rewards of the rollouts of a call, and which are cut off."""
    _, jobs, samples = call
    rewards, cut = [], []
    for j, finish in enumerate(samples.finish):
        text = setup_of().tokenizer.decode(whole(call, j)[PROMPT_LENGTH:]).partition(STOP)[0]
        cut.append(finish == Finish.LENGTH or text.startswith("\n"))
        grade = setup_of().task.grade(batch.problems[jobs.trunk[j]], text)
        rewards.append(0.0 if cut[-1] else grade)
    return np.array(rewards, np.float32), np.array(cut)


@pytest.mark.parametrize("states", ["step", "token"])
def test_without_them_a_value_is_the_mean_of_its_own_rollouts_bit_for_bit(monkeypatch, states):
    calls = Recorder(monkeypatch).calls
    batch, given = iterate(setup_of(with_values(states=states, k=3)))
    assert len(calls) == 2
    rewards, cut = graded(calls[1], batch)
    expected = vine.values(rewards.reshape(-1, 3), cut.reshape(-1, 3))
    for found, wanted in zip(given.nodes, expected, strict=True):
        assert_array_equal(found, wanted)
    for m, of_state in enumerate(nodes_of(batch).of_state):
        assert_array_equal(given.values[m], expected.mean[of_state])


def test_pooled_rollouts_are_those_of_plain_values_and_count_where_they_pass(monkeypatch):
    """Every count and every mean again, by comparing all samples with all states."""
    calls = Recorder(monkeypatch).calls
    plain = iterate(setup_of(with_values(states="token", **(POOL | {"pool": False}))))[1]
    batch, given = iterate(setup_of(with_values(states="token", **POOL)))
    _, before, episodes, rollouts = calls
    assert_array_equal(rollouts[1].max_new_tokens, before[1].max_new_tokens)
    assert_array_equal(rollouts[2].tokens, before[2].tokens)
    assert_array_equal(given.rollouts, plain.nodes.count)
    rewards, _ = graded(rollouts, batch)
    nodes = nodes_of(batch)
    for i, (m, n) in enumerate(zip(nodes.trajectory, nodes.prefix_length, strict=True)):
        prefix, problem = batch.tokens[m][:n].tolist(), batch.problems[m].id
        returns = [
            batch.reward[t]
            for t in range(len(batch.problems))
            if t != m and batch.problems[t].id == problem and whole(episodes, t)[:n] == prefix
        ]
        returns += [
            rewards[j]
            for j, (trunk, start) in enumerate(
                zip(rollouts[1].trunk, rollouts[1].prefix_length, strict=True)
            )
            if batch.problems[trunk].id == problem
            and start <= n
            and whole(rollouts, j)[:n] == prefix
        ]
        assert given.nodes.count[i] == len(returns)
        assert_allclose(given.nodes.mean[i], np.mean(returns), atol=1e-6)


def test_a_trajectory_that_stopped_behind_a_state_counts_there():
    """What a stop string cuts off was drawn, and leads through states all the same."""
    _, runs = iterations(states="token", **POOL)
    found = 0
    for batch, _ in runs:
        nodes = nodes_of(batch)
        lengths = [len(batch.prompts[m]) + len(r.tokens) for m, r in enumerate(batch.responses)]
        for m, n in zip(nodes.trajectory, nodes.prefix_length, strict=True):
            for t, r in enumerate(batch.responses):
                drawn = [*batch.prompts[t], *r.drawn]
                passes = np.array_equal(drawn[:n], batch.tokens[m][:n])
                found += passes and lengths[t] < n and batch.problems[t].id == batch.problems[m].id
    assert found


def test_new_rollouts_only_where_too_few_samples_are_known():
    setup, runs = iterations(states="token", count=6, **FILL)
    least, k = setup.config.values.min_samples, setup.config.values.k
    plain = iterations(states="token", count=6, **POOL)[1]
    fresh = set()
    for (_, given), (_, full) in zip(runs, plain, strict=True):
        assert given.nodes.count.min() >= least
        assert given.rollouts.max() == k
        assert given.rollouts.sum() < 0.8 * full.rollouts.sum()
        assert given.counters.tokens_sampled < full.counters.tokens_sampled
        topped = (given.rollouts > 0) & (given.rollouts < k)
        assert (given.nodes.count[topped] == least).sum() > 0
        # Seven siblings are enough for the prompts.
        fresh |= set(given.rollouts.tolist())
    assert fresh == {0, 1, 2, k}


@pytest.mark.parametrize("changes", PLANS)
def test_states_between_equal_ones_are_left_out(changes):
    _, runs = iterations(states="token", count=6, **changes)
    for batch, given in runs:
        distinct = len(nodes_of(batch).trajectory)
        assert len(given.nodes.mean) + given.left_out == distinct
    assert sum(given.left_out for _, given in runs) > 0


@pytest.mark.parametrize("changes", CHEAPER)
def test_values_depend_neither_on_the_wave_nor_on_other_prompts_and_repeat(changes):
    config = with_values(states="token", **changes)
    batch, given = iterate(setup_of(config))
    narrow = replace(config, engine=replace(CONFIG.engine, wave=8))
    for other in (setup_of(config), setup_of(narrow), setup_of(config, "3")):
        again, values = iterate(other)
        mine = [m for m, p in enumerate(batch.problems) if p.id in {q.id for q in again.problems}]
        assert len(mine) == len(values.values)
        for m, found in zip(mine, values.values, strict=True):
            assert_array_equal(found, given.values[m])


def test_metrics_of_pooled_values():
    _, ((batch, given), *_) = iterations(states="token", **FILL)
    numbers = measures.of_iteration(batch, given, {"tokens": 1.0}, 0)
    count = given.nodes.count.sum()
    assert numbers["rollouts"] == given.rollouts.sum()
    assert_allclose(numbers["pooled_share"], (count - given.rollouts.sum()) / count)
    assert_allclose(numbers["samples_per_state"], given.nodes.count.mean())
    assert numbers["states_left_out"] == 0
    _, ((batch, given), *_) = iterations(states="token")
    numbers = measures.of_iteration(batch, given, {"tokens": 1.0}, 0)
    assert (numbers["pooled_share"], numbers["samples_per_state"]) == (0, CONFIG.values.k)
