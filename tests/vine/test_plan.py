"""The order in which states are sampled, and which are left out, by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import vine


def rounds(kind, returns, reward):
    """The states of each round, if the samples of state i all have returns[i] (NaN: differ)."""
    returns, known = np.array(returns, float), np.zeros(len(returns), bool)
    found = []
    while following := vine.next_states(kind, known, np.where(known, returns, np.nan), reward):
        assert not known[following].any()
        known[following] = True
        found.append(following)
    return found


def test_all_states_come_in_rounds_of_twice_the_size():
    assert rounds("all", [np.nan] * 9, 1) == [[0], [1, 2], [3, 4, 5, 6], [7, 8]]
    assert rounds("all", [0] * 3, 0) == [[0], [1, 2]]
    assert rounds("all", [], 0) == []


def test_states_that_others_have_had_sampled_are_not_sampled_again():
    known = np.array([True, False, True, False])
    settled = np.full(4, np.nan)
    assert vine.next_states("all", known, settled, 1) == [1]
    assert vine.next_states("bisect", known, settled, 1) == [1, 3]


def test_skip_ends_where_samples_agree_with_the_return():
    assert rounds("skip", [np.nan, np.nan, 0, np.nan, np.nan], 0) == [[0], [1, 2]]
    assert rounds("skip", [np.nan, np.nan, 0, np.nan, np.nan], 1) == [[0], [1, 2], [3, 4]]
    assert rounds("skip", [1, np.nan], 1) == [[0]]
    # Only the last state counts: something happened behind the one before it.
    assert rounds("skip", [np.nan, 0, np.nan, 0], 0) == [[0], [1, 2], [3]]


def test_bisection_looks_where_the_ends_differ():
    settled = [1, 1, 1, 1, 1, 0, 0, 0]
    assert rounds("bisect", settled, 0) == [[0], [4], [6], [5]]
    assert rounds("bisect", [1] * 8, 1) == [[0]]
    assert rounds("bisect", [np.nan] * 4, 1) == [[0], [2], [1, 3]]
    assert rounds("bisect", [], 0) == []


def test_a_state_that_is_left_out_has_the_value_before_it():
    values = np.array([0.5, 9, 0.25, 9, 9], np.float32)
    known = np.array([True, False, True, False, False])
    assert_array_equal(vine.carried(values, known), [0.5, 0.5, 0.25, 0.25, 0.25])
    assert_array_equal(vine.carried(values[:0], known[:0]), [])


@pytest.mark.parametrize(("samples", "bound"), [(2, 0.148), (3, 0.105), (4, 0.082), (9, 0.039)])
def test_no_chain_of_two_steps_has_a_larger_expected_error_than_the_bound(samples, bound):
    closed = samples**samples / (samples + 1) ** (samples + 1)
    assert_allclose(closed, bound, atol=5e-4)
    # With probability p the state behind the first is worth `high`, otherwise 0.
    p, high = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401))
    first = p * high
    # All samples of the first fail, and the trajectory reaches the better state: its value is taken
    # for 0. It fails as well, or nothing would be left out.
    missed = (1 - first) ** samples * p * high
    assert missed.max() <= closed + 1e-12
    assert missed.max() > 0.99 * closed
    assert (missed * (1 - high)).max() < closed
