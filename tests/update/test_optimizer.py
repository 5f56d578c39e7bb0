"""Learning rates by hand, and AdamW by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import update
from vinejax.update import optimizer


def rates(steps, **settings):
    settings = update.Optimizer(learning_rate=2.0, total_steps=110, **settings)
    return [float(update.learning_rate(settings, t)) for t in steps]


def test_logarithmic_warmup_then_linear_to_0():
    got = rates([0, 1, 4, 9, 10, 60, 109, 110, 200], warmup_steps=10)
    warm = [0, 2 * math.log(2) / math.log(10), 2 * math.log(5) / math.log(10), 2]
    assert_allclose(got, [*warm, 2, 1, 0.02, 0, 0], rtol=1e-5)


def test_linear_warmup_then_constant():
    got = rates([0, 1, 5, 10, 109], warmup_steps=10, warmup="linear", decay="constant")
    assert_allclose(got, [0, 0.2, 1, 2, 2], rtol=1e-6)


def test_cosine_ends_at_a_tenth_of_the_peak():
    got = rates([10, 60, 110], warmup_steps=10, warmup="linear", decay="cosine")
    assert_allclose(got, [2, 1.1, 0.2], rtol=1e-5)


@pytest.mark.parametrize("warmup", ["logarithmic", "linear"])
def test_without_warmup_the_first_update_has_the_peak(warmup):
    assert_allclose(rates([0, 55], warmup=warmup), [2, 1])


def test_a_warmup_of_one_update_has_no_division_by_ln_1():
    assert_allclose(rates([0, 1, 2], warmup_steps=1), [0, 2, 2], rtol=1e-6)


def test_the_papers_warmups():
    assert update.warmup_steps(0.03, 16_000) == 480
    assert update.warmup_steps(0.03, 10_400) == 312
    assert update.warmup_steps(0.03, 30) == 1
    assert update.warmup_steps(0.0, 30) == 0


def test_two_steps_of_clipped_adamw_by_hand():
    settings = update.Optimizer(
        0.1, 10, b1=0.8, b2=0.5, eps=1e-3, weight_decay=0.2, max_grad_norm=1.0
    )
    params = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([0.5])}
    state = optimizer.direction(settings).init(params)
    p, m, v = np.array([1.0, -2.0, 0.5]), np.zeros(3), np.zeros(3)
    for t, gradient in enumerate([np.array([3.0, 0.0, 4.0]), np.array([0.1, 0.2, -0.3])], 1):
        tree = {
            "a": jnp.asarray(gradient[:2], jnp.float32),
            "b": jnp.asarray(gradient[2:], jnp.float32),
        }
        params, state = optimizer.apply(settings, tree, state, params, jnp.float32(0.1))
        g = gradient * min(1, 1 / np.linalg.norm(gradient))
        m, v = 0.8 * m + 0.2 * g, 0.5 * v + 0.5 * g**2
        step = (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.5**t)) + 1e-3)
        p = p - 0.1 * (step + 0.2 * p)
        assert_allclose(np.concatenate([params["a"], params["b"]]), p, rtol=1e-5)


def test_a_learning_rate_of_0_leaves_parameters_bit_identical():
    settings = update.Optimizer(1.0, 10, weight_decay=0.1)
    params = {"a": jnp.array([1.0, -2e-20, 3e20, 0.0])}
    state = optimizer.direction(settings).init(params)
    moved, _ = optimizer.apply(settings, params, state, params, jnp.float32(0.0))
    assert_array_equal(
        np.asarray(moved["a"]).view(np.int32), np.asarray(params["a"]).view(np.int32)
    )


def test_the_first_moment_can_be_kept_in_half_the_bytes():
    params, gradient = {"w": jnp.array([1.0, -2.0])}, {"w": jnp.array([0.3, -0.1])}
    steps = {}
    for kind in ("float32", "bfloat16"):
        settings = update.Optimizer(learning_rate=0.1, total_steps=9, first_moment=kind)
        opt_state = optimizer.direction(settings).init(params)
        new, opt_state = optimizer.apply(settings, gradient, opt_state, params, jnp.float32(0.1))
        moments = opt_state[1]
        assert (moments.mu["w"].dtype, moments.nu["w"].dtype) == (kind, "float32")
        steps[kind] = new["w"]
    assert_allclose(steps["bfloat16"], steps["float32"], rtol=1e-3)
