"""Traps of values and advantages: groups that teach nothing, and what they leave in the counts."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import advantages, masked, vine
from vinejax.update import losses
from vinejax.update.accumulate import count_sequences


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_groups_that_are_all_right_or_all_wrong_get_exactly_0(reward):
    values = vine.values(np.full((4, 9), reward, np.float32))
    steps = advantages.vine(values, reward)
    assert_array_equal(steps, 0)
    where = jnp.ones((2, 4), bool)
    assert_array_equal(masked.whiten(jnp.asarray([steps, steps]), where), 0)


def test_tokens_of_a_group_that_teaches_nothing_stay_in_the_denominator():
    where = jnp.array([[True] * 3, [True] * 3])
    given = jnp.array([[1.0] * 3, [0.0] * 3])
    zero = jnp.zeros((2, 3))
    sums = losses.policy_sums(zero, zero, given, where, clip=0.2)
    assert sums.tokens == 6
    assert_allclose(sums.loss / sums.tokens, -0.5)
    assert count_sequences(where, None) == 2
