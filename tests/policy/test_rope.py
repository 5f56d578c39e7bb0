"""Rotary positions against hand calculation."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from vinejax import policy
from vinejax.policy import rope

CONFIG = policy.LlamaConfig(
    vocab_size=8, hidden=8, layers=1, heads=1, kv_heads=1, ffn=8, head_dim=8, rope_theta=10000.0
)


def scaled(scaling: policy.RopeScaling, **changes) -> policy.LlamaConfig:
    return dataclasses.replace(CONFIG, rope_scaling=scaling, **changes)


def test_frequencies_are_powers_of_theta():
    np.testing.assert_allclose(rope.frequencies(CONFIG), [1.0, 0.1, 0.01, 0.001], rtol=1e-6)


def test_linear_scaling_divides_every_frequency():
    config = scaled(policy.RopeScaling("linear", 4.0))
    np.testing.assert_allclose(rope.frequencies(config), [0.25, 0.025, 0.0025, 0.00025], rtol=1e-6)


def test_llama3_scaling_keeps_fast_divides_slow_and_interpolates_between():
    """Waves below 1024/4 positions keep their speed, those above 1024/1 are slowed 8 times.

    Wave lengths are 6.28, 62.8, 628 and 6283. The third lies between: it turns
    1024 / 628.3185 = 1.629747 times, so its share is (1.629747 - 1) / (4 - 1) = 0.2099157 and its
    speed 0.01 * ((1 - 0.2099157) / 8 + 0.2099157) = 0.003086762.
    """
    config = scaled(policy.RopeScaling("llama3", 8.0, 1.0, 4.0, 1024))
    np.testing.assert_allclose(
        rope.frequencies(config), [1.0, 0.1, 0.003086762, 0.000125], rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_angles_are_fp32_whatever_the_compute_type(dtype):
    """Position 257 is 256 in bf16: the cosine would be that of another token."""
    config = dataclasses.replace(CONFIG, compute_dtype=dtype)
    positions = jnp.array([[255, 256, 257, 2047]])
    cos, sin = rope.angles(config, positions)
    assert cos.dtype == sin.dtype == jnp.float32
    angle = np.array([255, 256, 257, 2047])[:, None] * np.array([1.0, 0.1, 0.01, 0.001])
    np.testing.assert_allclose(cos[0], np.cos(angle), atol=2e-4)
    np.testing.assert_allclose(sin[0], np.sin(angle), atol=2e-4)


def test_pairs_are_halves_of_the_head_not_neighbours():
    x = jnp.array([1.0, 0, 0, 0, 0, 0, 0, 0])[None]
    cos, sin = rope.angles(CONFIG, jnp.array(1))
    turned = rope.rotate(x, cos, sin)[0]
    np.testing.assert_allclose(turned, [np.cos(1), 0, 0, 0, np.sin(1), 0, 0, 0], atol=1e-6)


def test_products_of_rotated_vectors_depend_on_distance_only():
    rng = np.random.default_rng(0)
    q, k = (jnp.asarray(rng.normal(size=(1, 8)), jnp.float32) for _ in range(2))

    def product(at_q: int, at_k: int) -> float:
        turned = [
            rope.rotate(x, *rope.angles(CONFIG, jnp.array(at))) for x, at in ((q, at_q), (k, at_k))
        ]
        return float((turned[0] * turned[1]).sum())

    assert product(7, 3) == pytest.approx(product(1004, 1000), abs=1e-3)
    assert product(7, 3) != pytest.approx(product(8, 3), abs=1e-3)


def test_bf16_vectors_are_rotated_in_fp32_and_rounded_once():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(4, 8)), jnp.bfloat16)
    cos, sin = rope.angles(CONFIG, jnp.array(300))
    out = rope.rotate(x, cos, sin)
    assert out.dtype == jnp.bfloat16
    wide = rope.rotate(x.astype(jnp.float32), cos, sin)
    np.testing.assert_array_equal(out, wide.astype(jnp.bfloat16))


def test_positions_count_real_tokens_and_restart_with_each_segment():
    where = jnp.array([[False, False, True, True, True]])
    np.testing.assert_array_equal(rope.positions_of(where), [[0, 0, 0, 1, 2]])
    segments = jnp.array([[4, 4, 1, 1, 1]])
    np.testing.assert_array_equal(rope.positions_of(where, segments), [[0, 1, 0, 1, 2]])
