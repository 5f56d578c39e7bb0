"""Step advantages of VinePPO: worked numbers, identities, the step cap, the way to the tokens."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import advantages

NINTHS = np.array([3, 6, 2, 8], np.float32) / 9


def test_the_worked_example():
    # V = 3/9, 6/9, 2/9, 8/9, then 0 for the terminal state.
    assert_allclose(advantages.vine(NINTHS, 1.0) * 9, [3, -4, 6, 1], rtol=1e-5)
    assert_allclose(advantages.vine(NINTHS, 0.0) * 9, [3, -4, 6, -8], rtol=1e-5)


@pytest.mark.parametrize("reward", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("max_step", [None, 0, 3, 25])
@pytest.mark.parametrize("n", [1, 2, 27, 200])
def test_advantages_telescope_to_reward_minus_first_value(n, max_step, reward):
    values = np.random.default_rng(n).integers(0, 10, n) / 9
    steps = advantages.vine(advantages.cap(values, reward, max_step), reward)
    assert_allclose(steps.sum(), reward - values[0], atol=1e-5)


def test_a_response_of_one_step_is_judged_against_the_prompt():
    assert_allclose(advantages.vine(np.array([0.25]), 1.0), [0.75])


def test_a_response_without_steps_is_refused():
    with pytest.raises(ValueError, match=r"\(0,\)"):
        advantages.vine(np.zeros(0), 1.0)


def test_a_record_of_values_a_jax_array_and_a_traced_array_give_the_same():
    expected = advantages.vine(NINTHS, 1.0)
    assert isinstance(expected, np.ndarray)
    assert_array_equal(advantages.vine(SimpleNamespace(mean=NINTHS), 1.0), expected)
    assert_array_equal(advantages.vine(jnp.array(NINTHS), 1.0), expected)
    assert_array_equal(jax.jit(advantages.vine)(jnp.array(NINTHS), 1.0), expected)


def test_the_step_after_the_cap_receives_all_that_is_left_and_later_ones_exactly_0():
    values = np.full(30, 1 / 3)
    steps = advantages.vine(advantages.cap(values, 1.0, 25), 1.0)
    assert_allclose(steps[25], 2 / 3, rtol=1e-6)  # from value index 25 to 26
    assert_array_equal(steps[26:], 0)
    assert_array_equal(steps[:25], 0)


def test_a_cap_beyond_the_last_step_changes_nothing():
    assert_array_equal(advantages.cap(NINTHS, 1.0, 3), NINTHS)
    assert_array_equal(advantages.cap(NINTHS, 1.0, None), NINTHS)


def test_each_response_token_gets_its_steps_advantage_and_others_0():
    # prompt, prompt, step 0 x 2, step 1, step 2 and EOS (of the last step), padding
    step_of_token = np.array([-1, -1, 0, 0, 1, 2, 2, -1])
    steps = np.array([0.5, -0.25, 1.0])
    expected = [0, 0, 0.5, 0.5, -0.25, 1.0, 1.0, 0]
    assert_array_equal(advantages.spread(steps, step_of_token), expected)
    assert_array_equal(jax.jit(advantages.spread)(steps, step_of_token), expected)


@pytest.mark.parametrize("rng", [np.random.default_rng(3), jax.random.key(3)])
def test_permuting_keeps_the_advantages_and_moves_them(rng):
    steps = np.arange(20, dtype=np.float32)
    moved = advantages.permute(steps, rng)
    assert_array_equal(np.sort(moved), steps)
    assert (moved != steps).any()
    assert_array_equal(steps, np.arange(20))


def test_permuting_with_the_same_key_gives_the_same_order():
    steps = np.arange(20, dtype=np.float32)
    first, second = (advantages.permute(steps, jax.random.key(k)) for k in (3, 4))
    assert_array_equal(advantages.permute(steps, jax.random.key(3)), first)
    assert (first != second).any()
