"""The decoder: masks, padding, layers, heads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinejax import policy
from vinejax.policy import attention, rope

CONFIG = policy.LlamaConfig(
    vocab_size=31, hidden=32, layers=2, heads=4, kv_heads=2, ffn=40, norm_eps=1e-5, eos_id=2
)
DEEP = dataclasses.replace(CONFIG, layers=6)
_forward = jax.jit(policy.forward, static_argnums=1)
_init = jax.jit(policy.init, static_argnums=0)
_logprobs = jax.jit(policy.sequence_logprobs, static_argnums=1)


@pytest.fixture(scope="module")
def params():
    return _init(CONFIG, jax.random.key(0))


def tokens(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CONFIG.vocab_size, shape).astype(np.int32)


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("left", [0, 3, 5])
@pytest.mark.parametrize("filler", [0, 30, -1, 10**6])
def test_left_right_and_no_padding_give_the_same_logits(params, left, filler):
    ids = tokens((2, 7))
    row = np.full((2, 12), filler, np.int32)
    row[:, left : left + 7] = ids
    where = np.zeros((2, 12), bool)
    where[:, left : left + 7] = True
    padded = _forward(params, CONFIG, row, where)
    assert np.isfinite(padded).all()
    close(padded[:, left : left + 7], _forward(params, CONFIG, ids))


def test_prompts_of_different_length_in_a_batch_choose_the_tokens_they_choose_alone(params):
    ids, lengths = tokens((4, 9), 1), [3, 9, 1, 6]
    where = np.arange(9)[None] < np.array(lengths)[:, None]
    together = np.argmax(_forward(params, CONFIG, ids, where), axis=-1)
    for row, length in enumerate(lengths):
        alone = np.argmax(_forward(params, CONFIG, ids[row : row + 1, :length]), axis=-1)
        np.testing.assert_array_equal(together[row, :length], alone[0])


def test_a_later_token_changes_nothing_before_it(params):
    ids = tokens((1, 8))
    changed = ids.copy()
    changed[0, 5] = (ids[0, 5] + 1) % CONFIG.vocab_size
    before, after = _forward(params, CONFIG, ids), _forward(params, CONFIG, changed)
    close(before[:, :5], after[:, :5], 1e-6)
    assert np.abs(before[:, 5:] - after[:, 5:]).max() > 1e-3


def test_a_row_without_any_token_is_finite_and_leaves_the_others_alone(params):
    ids = tokens((2, 6))
    where = np.array([[True] * 6, [False] * 6])
    both = _forward(params, CONFIG, ids, where)
    assert np.isfinite(both).all()
    close(both[:1], _forward(params, CONFIG, ids[:1]))


def test_packed_texts_score_as_they_do_in_rows_of_their_own(params):
    first, second = tokens((1, 5)), tokens((1, 4), 1)
    packed = np.concatenate([first, second, [[0, 0]]], axis=1).astype(np.int32)
    where = np.arange(11)[None] < 9
    segments = np.array([[0] * 5 + [1] * 4 + [2] * 2])
    logits = _forward(params, CONFIG, packed, where, None, segments)
    close(logits[:, :5], _forward(params, CONFIG, first))
    close(logits[:, 5:9], _forward(params, CONFIG, second))
    out = _logprobs(params, CONFIG, packed, where, 0.7, segments)
    alone = _logprobs(params, CONFIG, second, np.ones((1, 4), bool), 0.7)
    close(out.logp[:, 5:9], alone.logp)
    assert out.logp[0, 5] == 0


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_equals_numpy_with_repeated_heads(groups):
    """Query head n reads key/value head n // (N / G): transformers' `repeat_kv` order."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 5, n, 8)).astype(np.float32) for n in (4, groups, groups))
    where = np.array([[True] * 5, [True] * 3 + [False] * 2])
    out = np.asarray(attention.causal(q, k, v, where))
    k, v = (np.repeat(x, 4 // groups, axis=2) for x in (k, v))
    for b in range(2):
        for t in range(int(where[b].sum())):
            for n in range(4):
                score = k[b, : t + 1, n] @ q[b, t, n] / np.sqrt(8)
                weight = np.exp(score - score.max())
                close(out[b, t, n], weight @ v[b, : t + 1, n] / weight.sum())


def test_a_query_that_sees_nothing_gets_zero_with_a_finite_gradient():
    q = jnp.ones((1, 2, 2, 4))
    kv = jnp.full((1, 2, 1, 4), jnp.nan)

    def total(q, kv):
        return attention.causal(q, kv, kv, jnp.zeros((1, 2), bool)).sum()

    value, gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(q, kv)
    assert value == 0
    assert all(np.isfinite(g).all() for g in gradient)


def test_scanned_layers_equal_a_plain_loop_over_blocks():
    params = _init(DEEP, jax.random.key(1))
    ids = tokens((2, 5))
    where = jnp.ones(ids.shape, bool)

    @jax.jit
    def plain(params):
        weights = policy.unstack(params, DEEP)
        cos, sin = rope.angles(DEEP, rope.positions_of(where))
        x = policy.embed_tokens(weights["embed"], DEEP, ids)
        for w in weights["layers"]:
            x = policy.block(w, x, DEEP, cos, sin, lambda q, k, v: attention.causal(q, k, v, where))
        x = policy.rms_norm(x, weights["final_norm"], DEEP.norm_eps)
        return policy.logits(x, weights["head"])

    close(_forward(params, DEEP, ids), plain(params))


@pytest.mark.parametrize("remat", ["dots", "block"])
@pytest.mark.parametrize("config", [CONFIG, DEEP])
def test_remat_changes_neither_value_nor_gradient(config, remat):
    params = _init(config, jax.random.key(0))
    ids = tokens((2, 6))

    def loss(params, config):
        return jnp.square(policy.forward(params, config, ids)).mean()

    grad = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    plain = grad(params, config)
    again = grad(params, dataclasses.replace(config, remat=remat))
    jax.tree.map(close, plain, again)


def test_logits_are_fp32_and_products_take_the_compute_type(params):
    config = dataclasses.replace(CONFIG, compute_dtype="bfloat16")
    hidden = jax.eval_shape(lambda p: policy.hidden(p, config, tokens((1, 3))), params)
    assert jax.eval_shape(lambda p: policy.forward(p, config, tokens((1, 3))), params).dtype == (
        jnp.float32
    )
    assert hidden.dtype == jnp.bfloat16
    weights = jax.jit(policy.unstack, static_argnums=1)(params, config)
    assert weights["layers"][1]["wq"].dtype == weights["head"].dtype == jnp.bfloat16
    assert weights["layers"][1]["attn_norm"].dtype == jnp.float32
    # Casting once and casting in each layer is the same arithmetic.
    once = _forward(policy.cast(params, config), config, tokens((2, 6)))
    np.testing.assert_array_equal(once, _forward(params, config, tokens((2, 6))))


def test_other_parameters_of_the_same_compiled_function_give_other_logits(params):
    other = _init(CONFIG, jax.random.key(5))
    ids = tokens((1, 4))
    assert np.abs(_forward(params, CONFIG, ids) - _forward(other, CONFIG, ids)).max() > 1e-3


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_axes_shapes_and_initial_values_describe_the_same_tree(tied, bias):
    config = dataclasses.replace(
        CONFIG, tied=tied, qkv_bias=bias, model_type="qwen2" if bias else "llama"
    )
    params = _init(config, jax.random.key(0))
    is_tuple = lambda x: isinstance(x, tuple)  # noqa: E731
    axes = jax.tree.map(len, policy.logical_axes(config), is_leaf=is_tuple)
    assert axes == jax.tree.map(jnp.ndim, params)
    assert jax.tree.map(jnp.shape, params) == policy.shapes(config)
    assert ("head" in params) is not tied
    assert ("bq" in params["layers"]) is bias
    # Keys come from names: what else the tree has doesn't change a leaf.
    plain = _init(CONFIG, jax.random.key(0))
    np.testing.assert_array_equal(params["layers"]["w_up"], plain["layers"]["w_up"])
