"""What a mask hides has no effect, and every mean says what it is divided by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import masked

X = jnp.array([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]])
WHERE = jnp.array([[True, True, False], [True, False, False]])
NOTHING = jnp.zeros_like(WHERE)


def test_sum_mean_and_variance_by_hand():
    assert masked.sum(X, WHERE) == 7
    assert_array_equal(masked.sum(X, WHERE, axis=-1), [3, 4])
    assert_allclose(masked.mean(X, WHERE), 7 / 3, rtol=1e-6)
    assert masked.mean(X, WHERE, denominator=14.0) == 0.5
    assert_array_equal(masked.mean(X, WHERE, axis=-1), [1.5, 4])
    assert_allclose(masked.var(X, WHERE), np.var([1, 2, 4], ddof=1), rtol=1e-6)


def test_whitening_by_hand():
    # The worked example of the authors' rules: mean 1/6, unbiased variance 1/9.
    x = jnp.array([[1 / 3, 1 / 3, -1 / 3], [1 / 3, 7.0, 7.0]])
    where = jnp.array([[True, True, True], [True, False, False]])
    expected = [[0.5, 0.5, -1.5], [0.5, 0, 0]]
    assert_allclose(masked.whiten(x, where), expected, atol=1e-6)


def test_whitened_entries_have_mean_0_and_unbiased_variance_1():
    x = jax.random.normal(jax.random.key(0), (8, 16)) * 3 + 5
    where = jax.random.bernoulli(jax.random.key(1), 0.6, x.shape)
    white = masked.whiten(x, where)
    assert_allclose(masked.mean(white, where), 0, atol=1e-6)
    assert_allclose(masked.var(white, where), 1, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1 / 3, 1e6])
def test_equal_entries_whiten_to_exactly_0(value):
    x = jnp.full((7, 9), value)
    where = jax.random.bernoulli(jax.random.key(2), 0.5, x.shape)
    assert_array_equal(masked.whiten(x, where), jnp.zeros_like(x))


def test_one_entry_or_none_whitens_to_0_and_has_variance_0():
    one = NOTHING.at[0, 1].set(True)
    for where in (one, NOTHING):
        assert_array_equal(masked.whiten(X, where), jnp.zeros_like(X))
        assert masked.var(X, where) == 0
    assert masked.mean(X, NOTHING) == 0


@pytest.mark.parametrize("garbage", [jnp.nan, jnp.inf, -jnp.inf, 1e30])
@pytest.mark.parametrize(
    "function",
    [
        masked.sum,
        masked.mean,
        masked.var,
        lambda x, where: jnp.square(masked.whiten(x, where)[0, 0]),
        lambda x, where: jnp.exp(masked.keep(x, where)).sum(),
    ],
)
def test_garbage_under_the_mask_reaches_neither_value_nor_gradient(function, garbage):
    clean = jax.value_and_grad(function)(jnp.where(WHERE, X, 0.0), WHERE)
    dirty = jax.value_and_grad(function)(jnp.where(WHERE, X, garbage), WHERE)
    assert_array_equal(clean[0], dirty[0])
    assert_array_equal(clean[1], dirty[1])
    assert np.isfinite(dirty[1]).all()
    assert_array_equal(dirty[1][~WHERE], 0)


def test_reductions_of_bfloat16_are_float32():
    x = jnp.ones((1, 1000), jnp.bfloat16)
    assert masked.sum(x, jnp.ones(x.shape, bool)) == 1000  # bfloat16 would stop at 256
