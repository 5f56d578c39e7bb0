"""Truth, predictions and next steps of a policy whose continuations can all be listed."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import PARAMS, PROMPT_LENGTH, Exact, setup_of, with_values
from vinejax.analysis import actions, values
from vinejax.analysis.predictors import Critic, Policy, by_rollouts
from vinejax.grading import GraderPool
from vinejax.train import trajectories
from vinejax.train.algorithms import ppo
from vinejax.train.shards import Shards
from vinejax.update import critic as update

ROLLOUTS = 64


@pytest.fixture(scope="module")
def policy():
    setup = setup_of(with_values(states="token", k=2))
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        yield Policy.of(setup, 0, PARAMS, graders)


@pytest.fixture(scope="module")
def pool(policy):
    return values.reached(policy, 24)


@pytest.fixture(scope="module")
def record(policy, pool):
    return values.sample(policy, pool, 24, ROLLOUTS)


def test_states_are_distinct_and_come_from_several_problems(pool):
    assert len(pool) >= 24
    assert len({(s.problem.id, s.tokens.tobytes()) for s in pool}) == len(pool)
    assert [s.step for s in pool] == [len(s.tokens) - PROMPT_LENGTH for s in pool]
    assert len({s.problem.id for s in pool[:24]}) > 2


def test_truth_and_predictions_have_the_exact_value_as_their_mean(policy, pool, record):
    exact, scores = Exact(policy.setup), []
    k9 = np.array(record["predicted"]["mc_9"])
    for i, state in enumerate(pool[:24]):
        response = tuple(state.tokens[PROMPT_LENGTH:].tolist())
        mean, square = exact.moments(state.problem.id, response)
        variance = max(square - mean**2, 0)
        error = record["truth"][i] - mean
        assert abs(error) < 3.5 * np.sqrt(variance / ROLLOUTS) + 1e-6
        if variance > 0.01:
            scores.append((k9[i] - mean) / np.sqrt(variance / 9))
    # Single ones may be far off; all together may not.
    assert abs(np.sum(scores)) < 3 * np.sqrt(len(scores))
    assert 0.5 < np.std(scores) < 1.5


class Recorder:
    """Key and jobs of every call of the sampler, and what it gave."""

    def __init__(self, monkeypatch):
        self.calls, original = [], Shards.sample

        def sample(shards, weights, model, trunks, jobs, settings, key, **more):
            found = original(shards, weights, model, trunks, jobs, settings, key, **more)
            words = tuple(np.asarray(jax.random.key_data(key)).tolist())
            self.calls.append((words, trunks, jobs, found))
            return found

        monkeypatch.setattr(Shards, "sample", sample)

    @property
    def keys(self):
        return [key for key, *_ in self.calls]


def test_no_sample_is_in_truth_and_prediction(policy, pool, monkeypatch):
    recorder = Recorder(monkeypatch)
    values.sample(policy, pool, 24, ROLLOUTS)
    actions.sample(policy, pool, 4, 3, ROLLOUTS)
    values.reached(policy, 1)
    # Truth and estimates of values; steps, truth and estimates of actions; trajectories.
    assert len(recorder.keys) == len(set(recorder.keys)) == 6
    # What a sample is follows from its key, its prefix and its number: so these differ, too.
    (_, _, jobs, true), (_, _, _, guessed) = recorder.calls[:2]
    first = [np.flatnonzero(jobs.trunk == t)[:9] for t in range(24)]
    same = true.tokens[np.concatenate(first)] == guessed.tokens
    assert not same.all(axis=1).all()
    assert same.all(axis=1).mean() < 0.9  # responses of a few tokens are often equal by chance


def test_other_checkpoints_and_other_phases_have_other_keys(policy):
    later = replace(policy, iteration=1)
    names = ["analysis-truth", "analysis-estimates", "trajectories"]
    keys = [jax.random.key_data(p.key(n)).tolist() for p in (policy, later) for n in names]
    assert len({tuple(k) for k in keys}) == 6


def test_estimates_are_means_of_the_first_rollouts(policy, pool):
    rewards = np.array([[1, 0, 0, 0, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1, 1, 0.0]])
    found = by_rollouts(rewards, 2)
    assert list(found) == ["mc_1", "mc_2", "mc_3", "mc_9"]
    assert_allclose([c[0] for c in found.values()], [1, 1 / 2, 1 / 3, 1 / 3])
    assert_allclose(found["mc_9"][1], 8 / 9)


def test_the_other_samples_of_a_prompt_by_hand(policy, monkeypatch):
    batches, original = [], trajectories.collect

    def collect(*args):
        batches.append(original(*args))
        return batches[-1]

    monkeypatch.setattr(trajectories, "collect", collect)
    pool = values.reached(policy, 1)
    (batch,) = batches
    for state in pool:
        members = [m for m, p in enumerate(batch.problems) if p.id == state.problem.id]
        own = next(
            m
            for m in members
            if batch.tokens[m][: len(state.tokens)].tolist() == state.tokens.tolist()
            and state.step < batch.states[m].count
        )
        others = [batch.reward[m] for m in members if m != own]
        assert_allclose(state.group_mean, batch.reward[members].mean(), atol=1e-6)
        assert state.leave_one_out == pytest.approx(np.mean(others), abs=1e-6)


def test_metrics_of_a_record_by_hand():
    record = {
        "problem": ["a", "a", "b", "b"],
        "step": [0, 1, 0, 1],
        "truth": [0.0, 0.5, 1.0, 0.5],
        "predicted": {"mc_1": [0.0, 1.0, 1.0, 0.0]},
    }
    found = values.summarise(json.loads(json.dumps(record)))
    assert (found["states"], found["problems"], found["value"]) == (4, 2, 0.5)
    assert found["extreme_share"] == 0.5
    one, constant = found["predictors"]["mc_1"], found["predictors"]["constant"]
    assert (one["within_0.05"]["value"], one["mae"]["value"]) == (0.5, 0.25)
    assert_allclose(one["error_slope"]["value"], 0.5)
    assert (constant["mae"]["value"], constant["explained_variance"]["value"]) == (0.25, 0.0)
    assert constant["correlation"]["value"] is None


@pytest.mark.parametrize(
    ("predicted", "truth_", "share"),
    [
        ([0.1, 0.9, 0.3], [0.0, 1.0, 0.2], 1.0),
        ([0.9, 0.1, 0.3], [0.0, 1.0, 0.2], 0.0),
        ([0.5, 0.5, 0.3], [0.0, 1.0, 0.2], 0.5),  # one of the two tied is the best
        ([0.5, 0.5, 0.5], [0.0, 1.0, 0.2], 1 / 3),  # a constant: chance
        ([0.5, 0.5, 0.5], [1.0, 1.0, 0.2], 2 / 3),  # two are best
        ([0.1, 0.5, 0.3], [1.0, 1.0, 0.2], 1.0),
    ],
)
def test_the_best_step_by_hand(predicted, truth_, share):
    assert_allclose(actions.found_share(predicted, np.array(truth_)), share)


def test_shares_of_best_steps_by_hand():
    record = {
        "tried": 9,
        "problem": ["a", "b", "b"],
        "truth": [[0.0, 1.0, 0.2], [0.5, 0.5, 0.55], [1.0, 0.0, 0.0, 0.0]],
        "predicted": {"mc_1": [[0, 1, 0], [0, 0, 1], [1, 1, 0, 0]]},
    }
    found = actions.summarise(record)
    # The second state's steps differ by .05 only.
    assert (found["tried"], found["with_alternatives"], found["with_spread"]) == (9, 3, 2)
    assert_allclose(found["predictors"]["mc_1"]["value"], (1 + 0.5) / 2)
    assert_allclose(found["chance"], (1 / 3 + 1 / 4) / 2)
    assert found["alternatives"] == 3.5
    nothing = actions.summarise(record | {"truth": [[0.0, 0.1, 0.0]], "problem": ["a"]})
    assert nothing["chance"] is None
    assert nothing["with_spread"] == 0


def test_alternatives_are_distinct_next_steps_that_do_not_end_the_response(policy, pool):
    found = actions.sample(policy, pool, 50, 3, ROLLOUTS)
    assert found["tried"] == sum(s.step > 0 for s in pool)
    json.dumps(found)
    exact = Exact(policy.setup)
    inner = [s for s in pool if s.step > 0]
    each = actions.alternatives(policy, inner, 3)
    rows = [(s, own) for s, own in zip(inner, each, strict=True) if own]
    assert sum(map(bool, actions.alternatives(policy, inner, 2))) >= len(rows)
    assert len(rows) == len(found["truth"]) > 0
    for (state, own), measured in zip(rows, found["truth"], strict=True):
        assert len(own) == len(measured) >= 3
        assert len({a.tokens.tobytes() for a in own}) == len(own)
        for action, value in zip(own, measured, strict=True):
            # A state at every token: a next step is one token, and one more was sampled behind it.
            assert action.tokens[:-1].tolist() == state.tokens.tolist()
            response = tuple(action.tokens[PROMPT_LENGTH:].tolist())
            mean, square = exact.moments(state.problem.id, response)
            assert abs(value - mean) < 4 * np.sqrt(max(square - mean**2, 0) / ROLLOUTS) + 1e-6


def test_nothing_can_be_ranked_where_there_is_no_inner_state(policy, pool):
    prompts = [s for s in pool if s.step == 0]
    found = actions.sample(policy, prompts, 5, 3, ROLLOUTS)
    assert found["tried"] == 0
    assert actions.summarise(found)["with_spread"] == 0


def test_the_critic_is_the_one_that_training_uses(policy, pool):
    config = replace(policy.setup.config, algorithm="ppo", iterations=1)
    setup = replace(policy.setup, config=config)
    critic = Critic.load(setup, PARAMS, None, 0)
    states = pool[:20]
    state = ppo.first_critic(setup, PARAMS)
    for one, value in zip(states, critic(states), strict=True):
        # Of a longer sequence, at the token behind the state: causal, so it is the same.
        tokens = np.append(one.tokens, [3, 2, 4]).astype(np.int32)[None]
        exact = update.token_values(
            state.params, setup.model, jnp.asarray(tokens), jnp.array([tokens.shape[1]])
        )
        assert_allclose(value, exact[0, len(one.tokens)], atol=1e-5)
    assert_array_equal(critic(states[:3]), critic(states)[:3])
