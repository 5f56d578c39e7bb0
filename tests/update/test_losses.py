"""The loss term by term: the worked numbers, hand-made cases, and what masks must hide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import masked
from vinejax.update import losses
from vinejax.update.accumulate import count_sequences

THIRD = 1 / 3
# Two sequences with responses of 3 and 1 tokens; what stands in the other slots must not matter.
WHERE = jnp.array([[True, True, True], [True, False, False]])
ADVANTAGES = jnp.array([[THIRD, THIRD, -THIRD], [THIRD, jnp.nan, 1e9]])


def policy_term(ratio):
    white = masked.whiten(ADVANTAGES, WHERE)
    logp = jnp.log(jnp.array(ratio))
    sums = losses.policy_sums(logp, jnp.zeros((2, 3)), white, WHERE, clip=0.2)
    return sums.loss / sums.tokens


def test_policy_term_of_the_worked_example():
    assert_allclose(policy_term([[1, 1, 1], [1, 1, 1]]), 0, atol=1e-7)
    assert_allclose(policy_term([[1.5, 1, 1], [1, 9, 9]]), -0.025, atol=1e-6)
    assert_allclose(policy_term([[1, 1, 0.5], [1, 9, 9]]), -0.075, atol=1e-6)


def test_kl_term_of_the_worked_example():
    d = jnp.array([[0.1, 0, -0.2], [0, 7, 7]])
    sums = losses.kl_sums(jnp.zeros((2, 3)), d, WHERE)
    assert_allclose(sums.loss, 0.005171 + 0.018731, atol=1e-6)
    assert_allclose(1e-4 * sums.loss / count_sequences(WHERE, None), 1.195e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope", "clipped"),
    [
        (1.0, 0.5, -0.5, -0.5, 0),  # below the range, gain: not clipped
        (1.0, 1.1, -1.1, -1.1, 0),
        (1.0, 1.5, -1.2, 0.0, 1),
        (-1.0, 0.5, 0.8, 0.0, 1),
        (-1.0, 1.1, 1.1, 1.1, 0),
        (-1.0, 1.5, 1.5, 1.5, 0),  # above the range, loss: not clipped
        (0.0, 1.5, 0.0, 0.0, 0),
    ],
)
def test_clipping_by_hand(advantage, ratio, loss, slope, clipped):
    def term(logp):
        one = jnp.ones((1, 1))
        return losses.policy_sums(logp, 0 * one, advantage * one, one > 0, clip=0.2)

    logp = jnp.log(jnp.full((1, 1), ratio))
    sums = term(logp)
    assert_allclose(sums.loss, loss, rtol=1e-6)
    assert_allclose(jax.grad(lambda x: term(x).loss)(logp), [[slope]], rtol=1e-6)
    assert sums.clipped == clipped
    assert_allclose(sums.ratio_max, ratio, rtol=1e-6)


def test_equal_log_probabilities_have_ratio_1_and_nothing_clipped():
    logp = jax.random.normal(jax.random.key(0), (2, 3))
    sums = losses.policy_sums(logp, logp, ADVANTAGES, WHERE, clip=0.2)
    assert (sums.ratio, sums.ratio_max, sums.clipped, sums.approx_kl) == (4, 1, 0, 0)
    assert losses.kl_sums(logp, logp, WHERE).loss == 0


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", [-0.5, 2.0]), ("k2", [0.125, 2.0]), ("k3", [np.exp(0.5) - 1.5, np.exp(-2.0) + 1.0])],
)
def test_kl_estimators_by_hand(estimator, expected):
    for d, value in zip((0.5, -2.0), expected, strict=True):
        one = jnp.ones((1, 1))
        assert_allclose(losses.kl_sums(0 * one, d * one, one > 0, estimator).loss, value, rtol=1e-6)


@pytest.mark.parametrize("d", [3.0, 40.0, 1000.0, -30.0])
def test_k3_is_clamped_to_10_a_token_and_its_gradient_stays_finite(d):
    def term(logp):
        return losses.kl_sums(logp, jnp.full((1, 2), d) + logp * 0, jnp.ones((1, 2), bool)).loss

    value, slope = jax.value_and_grad(term)(jnp.zeros((1, 2)))
    assert value == 20
    assert_array_equal(slope, 0)


@pytest.mark.parametrize("d", [1e-8, -1e-8, 1e-4, -1e-4])
def test_k3_is_not_negative(d):
    one = jnp.ones((1, 1))
    assert losses.kl_sums(0 * one, d * one, one > 0).loss >= 0


def test_expected_gradients_are_those_of_the_exact_divergences():
    ref = jnp.log(jnp.array([0.4, 0.3, 0.2, 0.06, 0.04]))
    theta = jnp.array([0.3, -0.2, 0.5, 0.1, -0.4])

    def expected(estimator):
        """The gradient of the loss on each token, weighed by that token's probability."""

        def on_token(theta, x):
            logp = jax.nn.log_softmax(theta)[x].reshape(1, 1)
            where = jnp.ones((1, 1), bool)
            return losses.kl_sums(logp, ref[x].reshape(1, 1), where, estimator).loss

        slopes = jax.vmap(jax.grad(on_token), (None, 0))(theta, jnp.arange(5))
        return jax.nn.softmax(theta) @ slopes

    def divergence(p, q):
        return jnp.sum(jnp.exp(p) * (p - q))

    reverse = jax.grad(lambda t: divergence(jax.nn.log_softmax(t), ref))(theta)
    forward = jax.grad(lambda t: divergence(ref, jax.nn.log_softmax(t)))(theta)
    assert_allclose(expected("k1"), jnp.zeros(5), atol=1e-6)
    assert_allclose(expected("k2"), reverse, atol=1e-6)
    assert_allclose(expected("k3"), forward, atol=1e-6)
    assert np.abs(reverse - forward).max() > 0.01


def test_the_mean_over_unequal_lengths_is_the_tokens_not_the_rows():
    # 10, 10 and 10 tokens that lose 1, 400 that lose 0: 30/430 = 0.070; a mean of means has 0.750.
    where = jnp.arange(400) < jnp.array([10, 10, 10, 400])[:, None]
    advantages = jnp.array([-1.0, -1.0, -1.0, 0.0])[:, None] * jnp.ones((4, 400))
    zero = jnp.zeros((4, 400))
    sums = losses.policy_sums(zero, zero, advantages, where, clip=0.2)
    assert_allclose(sums.loss / sums.tokens, 30 / 430, rtol=1e-6)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e9, -1e9])
def test_masked_slots_have_no_effect_on_value_or_gradient(garbage):
    rng = np.random.default_rng(0)
    where = jnp.array(rng.random((4, 6)) < 0.5).at[2].set(False)  # one row has no response at all
    arrays = [jnp.array(rng.normal(size=(4, 6)) * 0.3, jnp.float32) for _ in range(4)]

    def total(logp, old, ref, advantages):
        white = masked.whiten(advantages, where)
        gain = losses.policy_sums(logp, old, white, where, 0.2)
        drift = losses.kl_sums(logp, ref, where)
        mean, _ = losses.example_means(logp, where)
        return gain.loss + drift.loss + mean, (gain, drift)

    function = jax.value_and_grad(total, argnums=(0, 1, 2, 3), has_aux=True)
    clean = function(*arrays)
    dirty = function(*(jnp.where(where, x, garbage) for x in arrays))
    jax.tree.map(assert_array_equal, clean, dirty)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(dirty))


def test_sft_takes_the_mean_of_each_example_first():
    logp = jnp.array([[-1.0, -2.0, -3.0], [-4.0, jnp.nan, jnp.nan], [jnp.nan] * 3])
    where = jnp.array([[True, True, True], [True, False, False], [False] * 3])
    total, examples = losses.example_means(logp, where)
    assert total / examples == 3.0  # (2 + 4) / 2; the token mean would be 2.5
