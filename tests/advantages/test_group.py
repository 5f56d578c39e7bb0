"""GRPO and RLOO: values by hand, constant groups, and the relation to VinePPO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import advantages

REWARDS = np.array([1.0, 0.0, 0.5, 1.0])


def test_rloo_by_hand():
    # Others' means: 0.5, 2.5/3, 2/3, 0.5.
    assert_allclose(advantages.rloo(REWARDS), [0.5, -2.5 / 3, 0.5 - 2 / 3, 0.5], rtol=1e-5)


def test_grpo_by_hand():
    # Mean 0.625, sample variance (0.375^2 x 2 + 0.625^2 + 0.125^2) / 3 = 0.229167.
    expected = np.array([0.375, -0.625, -0.125, 0.375]) / np.sqrt(0.2291667)
    assert_allclose(advantages.grpo(REWARDS), expected, rtol=1e-5)


def test_grpo_without_the_standard_deviation_is_the_reward_less_the_mean():
    assert_allclose(advantages.grpo(REWARDS, std=False), [0.375, -0.625, -0.125, 0.375], rtol=1e-5)
    assert_array_equal(advantages.grpo(np.full(8, 0.1), std=False), np.zeros(8))


def test_vine_with_one_step_and_the_leave_one_out_mean_as_value_is_rloo():
    for i, own in enumerate(advantages.rloo(REWARDS)):
        others = np.delete(REWARDS, i).mean()
        assert_allclose(advantages.vine(np.array([others]), REWARDS[i]), [own], rtol=1e-5)


@pytest.mark.parametrize("function", [advantages.grpo, advantages.rloo])
@pytest.mark.parametrize("rewards", [[0.0] * 8, [1.0] * 8, [0.1] * 7, [1 / 3] * 3, [1.0], [0.0]])
def test_equal_rewards_and_a_single_sample_give_exactly_0(function, rewards):
    assert_array_equal(function(np.array(rewards)), np.zeros(len(rewards)))


@pytest.mark.parametrize("function", [advantages.grpo, advantages.rloo])
def test_they_sum_to_0_and_work_traced(function):
    assert_allclose(function(REWARDS).sum(), 0, atol=1e-6)
    assert_allclose(jax.jit(function)(jnp.array(REWARDS)), function(REWARDS), rtol=1e-6)


@pytest.mark.parametrize("function", [advantages.grpo, advantages.rloo])
def test_no_sample_is_refused(function):
    with pytest.raises(ValueError, match=r"\(0,\)"):
        function(np.zeros(0))
