"""Mean rewards by hand, and what happens to truncated and missing rollouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import vine

REWARDS = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)


def test_hand_numbers():
    out = vine.values(REWARDS)
    assert_allclose(out.mean, [0.75, 0, 1])
    # Deviations 1/4, 3/4, 1/4, 1/4: variance (12/16) / 3 = 1/4, of the mean 1/16.
    assert_allclose(out.stderr, [0.25, 0, 0])
    assert_array_equal(out.count, [4, 4, 4])
    assert_array_equal(out.truncated_share, [0, 0, 0])


def test_rewards_between_0_and_1():
    out = vine.values(np.array([[0, 0.5, 1], [0.5, 0.5, 0.5]]))
    assert_allclose(out.mean, [0.5, 0.5])
    assert_allclose(out.stderr, [np.sqrt(0.25 / 3), 0], atol=1e-7)


def test_a_truncated_rollout_counts_with_reward_0():
    truncated = np.array([[True, False, True, False], [True] * 4, [False] * 4])
    out = vine.values(REWARDS, truncated)
    assert_allclose(out.mean, [0.25, 0, 1])
    assert_allclose(out.stderr, [0.25, 0, 0])
    assert_allclose(out.truncated_share, [0.5, 1, 0])
    assert_array_equal(out.count, [4, 4, 4])


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_a_reward_for_truncation(array):
    truncated = array([[True, False, True, False], [True] * 4, [False] * 4])
    out = vine.values(array(REWARDS), truncated, truncation_reward=-1.0)
    assert_allclose(out.mean, [-0.25, -1, 1])
    # Rewards -1, 0, -1, 1: deviations 3/4, 1/4, 3/4, 5/4, variance (44/16) / 3, of the mean a 4th.
    assert_allclose(out.stderr, [np.sqrt(44 / 16 / 3 / 4), 0, 0], rtol=1e-6)
    single = vine.values(array(REWARDS[:, :1]), truncated[:, :1], truncation_reward=-1.0)
    assert_allclose(single.stderr, [1, 1, 1])  # half of -1 to 1


def test_only_rollouts_that_where_keeps_count():
    where = np.array([[True, True, False, False], [True] * 4, [False] * 4])
    truncated = np.array([[False, False, True, True], [True, False, False, False], [True] * 4])
    out = vine.values(REWARDS, truncated, where)
    assert_allclose(out.mean, [0.5, 0, 0])
    assert_allclose(out.truncated_share, [0, 0.25, 0])
    assert_array_equal(out.count, [2, 4, 0])
    assert_allclose(out.stderr, [0.5, 0, 0.5])


def test_nothing_that_is_left_out_has_an_influence():
    rewards, where = REWARDS.copy(), np.array([[True, True, False, False]] * 3)
    rewards[:, 2:] = np.nan
    for kind in (np.asarray, jnp.asarray):
        out = vine.values(kind(rewards), None, kind(where))
        assert_allclose(out.mean, [0.5, 0, 1])
        assert_allclose(out.stderr, [0.5, 0, 0])


def test_one_rollout_has_the_largest_standard_error():
    out = vine.values(np.array([[1.0], [0.0]]))
    assert_allclose(out.mean, [1, 0])
    assert_allclose(out.stderr, [0.5, 0.5])


def test_no_rollout_and_no_state():
    none = vine.values(np.zeros((3, 0)))
    assert_array_equal(none.mean, [0, 0, 0])
    assert_array_equal(none.stderr, [0.5, 0.5, 0.5])
    assert_array_equal(none.truncated_share, [0, 0, 0])
    assert_array_equal(none.count, [0, 0, 0])
    assert all(len(column) == 0 for column in vine.values(np.zeros((0, 9))))


def test_values_of_k_rollouts_are_multiples_of_one_kth():
    rewards = np.random.default_rng(0).integers(0, 2, (50, 9))
    ninths = vine.values(rewards).mean * 9
    assert_allclose(ninths, np.round(ninths), atol=1e-5)


def test_numpy_jax_and_a_traced_call_give_the_same():
    rng = np.random.default_rng(1)
    rewards = rng.choice([0, 0.5, 1], (7, 5)).astype(np.float32)
    truncated, where = rng.random((2, 7, 5)) < 0.5
    expected = vine.values(rewards, truncated, where)
    for function in (vine.values, jax.jit(vine.values)):
        out = function(jnp.asarray(rewards), jnp.asarray(truncated), jnp.asarray(where))
        for name, column in expected._asdict().items():
            assert isinstance(column, np.ndarray)
            assert isinstance(getattr(out, name), jax.Array)
            assert_allclose(getattr(out, name), column, atol=1e-6, err_msg=name)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"rewards have shape \(4,\)"):
        vine.values(np.zeros(4))
    with pytest.raises(ValueError, match=r"truncated has shape \(2, 3\), rewards have \(2, 4\)"):
        vine.values(np.zeros((2, 4)), np.zeros((2, 3), bool))
    with pytest.raises(ValueError, match=r"where has shape \(3, 4\)"):
        vine.values(np.zeros((2, 4)), None, np.ones((3, 4), bool))
