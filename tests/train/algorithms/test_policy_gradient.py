"""What each policy gradient does with an iteration: advantages by hand, and what moves nothing."""

import io
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import CONFIG, MODEL, PARAMS, setup_of, weights
from vinejax import advantages, policy
from vinejax.grading import GraderPool
from vinejax.report import Progress
from vinejax.train import algorithms, trajectories
from vinejax.train.algorithms import ppo
from vinejax.train.algorithms.base import Context
from vinejax.train.clock import Clock
from vinejax.train.learning import Learner
from vinejax.train.stopping import StopRequest

METHODS = ["vineppo", "ppo", "grpo", "rloo"]
GROUPS = ["grpo", "rloo"]


def config_of(method, **update):
    """A run of one iteration with a constant learning rate."""
    changed = {"learning_rate": 1e-2, "warmup_ratio": 0.0, "decay": "constant"} | update
    return replace(
        CONFIG,
        algorithm=method,
        iterations=1,
        update=replace(CONFIG.update, **changed),
        advantages=replace(CONFIG.advantages, whiten=method not in GROUPS),
    )


@pytest.fixture(scope="module")
def graders():
    with GraderPool(CONFIG.task.name, {}, workers=0) as pool:
        yield pool


@pytest.fixture(scope="module")
def batch(graders):
    return trajectories.collect(setup_of(), weights(), graders, 0, 0, Clock())


@pytest.fixture
def method_of(graders):
    def make(config, start=PARAMS):
        """A method before its first iteration; `start` is its reference."""
        setup = setup_of(config)
        progress = Progress(1, stream=io.StringIO())
        context = Context(
            setup,
            Path("nowhere"),
            Learner(setup, PARAMS, Path("nowhere")),
            policy.unstack(start, MODEL),
            lambda: start,
            graders,
            progress,
            StopRequest(progress.note),
        )
        return algorithms.get(config.algorithm)(context)

    return make


def assign(method, batch):
    return method.assign(0, batch, weights(), Clock())


def after(method, batch):
    """Metrics, and the policy's parameters behind one iteration."""
    metrics, _ = method.learn(0, batch, weights(), Clock())
    return metrics, method.context.learner.state.params


def test_ppo_with_gamma_and_lambda_1_gives_the_reward_less_the_value(method_of, batch):
    method = method_of(config_of("ppo"))
    tree = method.state.params
    given = assign(method, batch)
    assert len({len(r.tokens) for r in batch.responses}) > 2
    for m, response in enumerate(batch.responses):
        assert given.token_values is not None
        expected = batch.reward[m] - given.token_values[m]
        assert_allclose(given.token_advantages[m], expected, atol=1e-5)
        # The value before a token, from the critic's hidden states one by one.
        prompt = batch.prompts[m]
        hidden = policy.hidden(tree, MODEL, np.concatenate([prompt, response.tokens])[None])[0]
        at = len(prompt) - 1 + np.arange(len(response.tokens))
        value = hidden[at] @ tree["value"]["w"] + tree["value"]["b"]
        assert_allclose(given.token_values[m], value, atol=1e-5)
        assert given.values is not None
        assert_array_equal(given.values[m], given.token_values[m][batch.states[m].starts])


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 0.0)])
def test_gamma_and_lambda_of_ppo_arrive(method_of, batch, gamma, lam):
    config = config_of("ppo")
    config = replace(config, critic=replace(config.critic, gamma=gamma, lam=lam))
    given = assign(method_of(config), batch)
    assert given.token_values is not None
    for reward, own, values in zip(
        batch.reward, given.token_advantages, given.token_values, strict=True
    ):
        behind, expected = 0.0, []
        for t in reversed(range(len(values))):
            last = t == len(values) - 1
            delta = (reward if last else gamma * values[t + 1]) - values[t]
            behind = delta + gamma * lam * behind
            expected.append(behind)
        assert_allclose(own, expected[::-1], atol=1e-5)


def test_rloo_is_vineppo_with_one_step_and_the_others_mean_as_its_value(method_of, batch):
    given = assign(method_of(config_of("rloo")), batch)
    for m, response in enumerate(batch.responses):
        first = m // CONFIG.samples * CONFIG.samples
        others = np.delete(batch.reward[first : first + CONFIG.samples], m - first).mean()
        one_step = advantages.vine(np.array([others]), batch.reward[m])
        spread = advantages.spread(one_step, np.zeros(len(response.tokens), int))
        assert_allclose(given.token_advantages[m], spread, atol=1e-6)


def test_grpo_divides_by_the_standard_deviation_unless_it_is_dr_grpo(method_of, batch):
    config = config_of("grpo")
    plain = replace(config, advantages=replace(config.advantages, std=False))
    whole, doctor = (assign(method_of(c), batch) for c in (config, plain))
    for first in range(0, len(batch.reward), CONFIG.samples):
        group = batch.reward[first : first + CONFIG.samples].astype(float)
        spread = group.std(ddof=1) or 1.0
        for m, reward in enumerate(group, start=first):
            above = reward - group.mean()
            assert_allclose(doctor.token_advantages[m], above, atol=1e-6)
            assert_allclose(whole.token_advantages[m], above / spread, atol=1e-5)
            assert len(whole.step_advantages[m]) == batch.states[m].count


@pytest.mark.parametrize("name", METHODS)
def test_a_learning_rate_of_0_changes_no_bit(method_of, batch, name):
    method = method_of(config_of(name, learning_rate=0.0, weight_decay=0.1))
    before = jax.device_get(method.state)
    metrics, params = after(method, batch)
    jax.tree.map(assert_array_equal, params, PARAMS)
    assert metrics["learning_rate"] == 0
    assert metrics["grad_norm"] > 0
    if name == "ppo":
        jax.tree.map(assert_array_equal, method.state.params, before.params)
        assert metrics["critic_grad_norm"] > 0


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("name", GROUPS)
def test_constant_rewards_move_nothing_but_by_the_kl_term(method_of, batch, name, reward):
    equal = replace(batch, reward=np.full_like(batch.reward, reward))
    metrics, params = after(method_of(config_of(name, kl=0.0)), equal)
    jax.tree.map(assert_array_equal, params, PARAMS)
    assert metrics["zero_advantage_share"] == 1
    assert metrics["advantage"] == metrics["loss"] == metrics["grad_norm"] == 0
    # All tokens stay in the count that the loss is divided by.
    assert metrics["tokens"] == 2 * sum(len(r.tokens) for r in batch.responses)
    away = jax.tree.map(lambda x: 1.1 * x, PARAMS)
    metrics, params = after(method_of(config_of(name, kl=0.1), away), equal)
    assert metrics["policy_loss"] == 0
    assert metrics["loss"] == metrics["kl_loss"] > 0
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: (a != b).any(), params, PARAMS)))


@pytest.mark.parametrize("name", METHODS)
def test_whitening_can_be_on_or_off(method_of, batch, name):
    losses = []
    for whiten in (True, False):
        config = config_of(name)
        config = replace(config, advantages=replace(config.advantages, whiten=whiten))
        metrics, _ = after(method_of(config), batch)
        losses.append(metrics["policy_loss"])
    assert np.isfinite(losses).all()
    assert abs(losses[0] - losses[1]) > 1e-4


def test_the_critic_learns_the_rewards_and_has_rates_and_epochs_of_its_own(method_of, batch):
    config = config_of("ppo")
    config = replace(config, critic=replace(config.critic, learning_rate=3e-3, epochs=30, clip=9.0))
    method = method_of(config)
    before, _ = after(method, batch)
    assert int(method.state.step) == 30 * CONFIG.episodes // CONFIG.update.minibatch
    assert before["critic_learning_rate"] == pytest.approx(3e-3)
    assert before["learning_rate"] == pytest.approx(1e-2)
    again, _ = after(method, batch)
    assert again["value_loss"] < 0.8 * before["value_loss"]
    assert again["value_explained_variance"] > before["value_explained_variance"] + 0.3


def test_explained_variance_by_hand():
    returns = np.array([0.0, 1.0, 0.0, 1.0])
    assert ppo.explained_variance(returns, returns) == 1
    assert ppo.explained_variance(np.full(4, 0.3), returns) == pytest.approx(0)
    assert ppo.explained_variance(0.5 * returns, returns) == pytest.approx(0.75)
    assert ppo.explained_variance(returns, np.ones(4)) == 0  # nothing to explain


def test_the_critics_schedule_counts_its_own_updates():
    config = config_of("ppo", warmup_ratio=0.1, decay="linear")
    config = replace(config, iterations=10, critic=replace(config.critic, epochs=5))
    optimizer = ppo.hyper(config, MODEL).optimizer
    assert optimizer.total_steps == 10 * 5 * 2  # 32 episodes in minibatches of 16
    assert optimizer.warmup_steps == 10
    assert optimizer.learning_rate == config.update.learning_rate
    assert ppo.hyper(config, MODEL).clip == config.critic.clip
