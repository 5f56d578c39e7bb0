"""GAE against its definition as a double loop, and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import advantages


def double_loop(rewards, values, gamma, lam, where):
    """The sum over l of (gamma lam)^l delta_{t+l}, over the kept entries alone, in float64."""
    kept = np.flatnonzero(where)
    r, v = rewards[kept].astype(float), np.append(values[kept].astype(float), 0.0)
    out = np.zeros(len(rewards))
    for i, t in enumerate(kept):
        for j in range(i, len(kept)):
            out[t] += (gamma * lam) ** (j - i) * (r[j] + gamma * v[j + 1] - v[j])
    return out


@pytest.mark.parametrize("gamma", [1.0, 0.95])
@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_matches_the_definition(gamma, lam):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 17))
    where = np.arange(17) >= 4
    where[[7, 15, 16]] = False  # a hole, and padding
    got = advantages.gae(rewards, values, gamma, lam, where)
    assert_allclose(got, double_loop(rewards, values, gamma, lam, where), atol=1e-5)


def test_with_gamma_and_lambda_1_it_is_reward_minus_value():
    values = jnp.array([0.2, 0.7, 0.4, 9.0])
    where = jnp.array([True, True, True, False])
    rewards = jnp.array([0.0, 0.0, 1.0, 9.0])
    assert_allclose(advantages.gae(rewards, values, 1.0, 1.0, where), [0.8, 0.3, 0.6, 0], rtol=1e-6)


@pytest.mark.parametrize("garbage", [100.0, np.nan, np.inf])
def test_masked_values_and_rewards_do_not_leak(garbage):
    # By hand, gamma 0.95: the last kept token has 1 + 0.95 x 0 - 0, the one before 0.95 x 1.
    where = np.array([False, True, True, False])
    values = np.array([garbage, 0.0, 0.0, garbage])
    rewards = np.array([garbage, 0.0, 1.0, garbage])
    got = advantages.gae(rewards, values, 0.95, 1.0, where)
    assert_allclose(got, [0, 0.95, 1.0, 0], rtol=1e-6)


def test_the_reward_stands_on_the_last_token_of_a_row_not_on_its_padding():
    values = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.5]])
    rewards = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    where = np.array([[True, True, False], [True, True, True]])
    got = jax.jit(advantages.gae)(rewards, values, 1.0, 1.0, where)
    assert_allclose(got, [[0.5, 0.5, 0], [0.5, 0.5, 0.5]])


def test_nothing_kept_gives_0():
    nan = np.full(3, np.nan)
    assert_array_equal(advantages.gae(nan, nan, 1.0, 1.0, np.zeros(3, bool)), np.zeros(3))
