"""Log-probabilities: alignment, chunks, ids that do not exist, the scorer and its cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinejax import policy
from vinejax.policy import rope

CONFIG = policy.LlamaConfig(
    vocab_size=31, hidden=32, layers=2, heads=4, kv_heads=2, ffn=40, norm_eps=1e-5
)
T = 0.6
_forward = jax.jit(policy.forward, static_argnums=1)
_sequence = jax.jit(policy.sequence_logprobs, static_argnums=1)
_logprobs = jax.jit(policy.logprobs, static_argnums=(4, 5))
_score = jax.jit(policy.score, static_argnames=("config", "keep_cache", "chunk"))


@pytest.fixture(scope="module")
def params():
    tree = jax.jit(policy.init, static_argnums=0)(CONFIG, jax.random.key(0))
    return tree | {"head": 20 * tree["head"]}  # distributions that are not all alike


@pytest.fixture(scope="module")
def weights(params):
    return jax.jit(policy.unstack, static_argnums=1)(params, CONFIG)


def batch() -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, 31, (3, 10)).astype(np.int32)
    return tokens, np.array([10, 4, 1])


def by_hand(params, tokens: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """logp and entropy of one row, float64 NumPy, one token at a time."""
    z = np.asarray(_forward(params, CONFIG, tokens[None])[0], np.float64) / temperature
    logp, entropy = np.zeros(len(tokens)), np.zeros(len(tokens))
    for t in range(1, len(tokens)):
        p = np.exp(z[t - 1] - z[t - 1].max())
        p /= p.sum()
        logp[t] = np.log(p[tokens[t]])
        entropy[t] = -(p * np.log(p)).sum()
    return logp, entropy


def hidden_and_head(dtype=jnp.float32):
    rng = np.random.default_rng(1)
    hidden = jnp.asarray(rng.normal(size=(2, 11, 16)), dtype)
    head = jnp.asarray(rng.normal(size=(16, 31)), dtype)
    return hidden, head, jnp.asarray(rng.integers(0, 31, (2, 11)))


def test_the_logprob_at_t_belongs_to_the_token_at_t(params, weights):
    tokens, length = batch()
    scores, _ = _score(weights, CONFIG, tokens, length, T)
    where = np.arange(10)[None] < length[:, None]
    trained = _sequence(params, CONFIG, tokens, where, T)
    for row, n in enumerate(length):
        logp, entropy = (x[:n] for x in by_hand(params, tokens[row], T))
        for out in (scores, trained):
            np.testing.assert_allclose(out.logp[row, :n], logp, atol=1e-5)
            np.testing.assert_allclose(out.entropy[row, :n], entropy, atol=1e-5)


def test_first_token_and_padding_have_zero_and_the_last_token_is_scored(weights):
    tokens, length = batch()
    scores, _ = _score(weights, CONFIG, tokens, length, T)
    is_scored = (np.arange(10)[None] < length[:, None]) & (np.arange(10) > 0)
    np.testing.assert_array_equal(scores.logp == 0, ~is_scored)
    np.testing.assert_array_equal(scores.entropy == 0, ~is_scored)
    assert np.asarray(scores.finite).all()


def test_temperature_divides_the_logits(weights):
    tokens, length = batch()
    one, _ = _score(weights, CONFIG, tokens, length, 1.0)
    cold, _ = _score(weights, CONFIG, tokens, length, T)
    assert np.abs(one.logp - cold.logp).max() > 0.1
    assert (one.entropy[0, 1:] > cold.entropy[0, 1:]).all()


def test_left_and_right_padding_give_the_same_logprobs(params):
    tokens, _ = batch()
    ids = tokens[:1, :6]
    alone = _sequence(params, CONFIG, ids, np.ones((1, 6), bool), T)
    for left in (0, 4):
        row, where = np.full((1, 10), -1, np.int32), np.zeros((1, 10), bool)
        row[:, left : left + 6], where[:, left : left + 6] = ids, True
        padded = _sequence(params, CONFIG, row, where, T)
        np.testing.assert_allclose(padded.logp[:, left : left + 6], alone.logp, atol=1e-5)
        assert padded.logp[0, left] == 0


@pytest.mark.parametrize("chunk", [1, 3, 4, 11])
def test_chunks_change_neither_value_nor_gradient(chunk):
    hidden, head, targets = hidden_and_head()

    def total(hidden, head, plain: bool):
        if plain:
            logp = jax.nn.log_softmax(hidden @ head / T)
            entropy = -(jnp.exp(logp) * logp).sum(-1)
            logp = jnp.take_along_axis(logp, targets[..., None], -1)[..., 0]
        else:
            logp, entropy = policy.logprobs(hidden, head, targets, T, 31, chunk)
        weight = jnp.arange(22.0).reshape(2, 11)
        return (weight * logp).sum() + (weight * entropy).sum()

    grad = jax.jit(jax.value_and_grad(total, argnums=(0, 1)), static_argnums=2)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        grad(hidden, head, False),
        grad(hidden, head, True),
    )


def test_no_array_of_all_logits_exists_in_value_or_gradient():
    """With 12 chunks, nothing as large as half of batch x time x vocabulary is ever allocated."""
    batch, time, size, vocab, chunk = 2, 96, 8, 1024, 8
    hidden, head = jnp.ones((batch, time, size)), jnp.ones((size, vocab))
    targets = jnp.zeros((batch, time), int)

    def total(hidden, head):
        return policy.logprobs(hidden, head, targets, T, vocab, chunk).logp.sum()

    compiled = jax.jit(jax.grad(total, argnums=(0, 1))).lower(hidden, head).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < batch * time * vocab * 4 / 2
    assert f"f32[{batch},{time},{vocab}]" not in compiled.as_text()


def test_head_gradient_over_many_chunks_is_summed_in_fp32():
    """256 equal chunk gradients: a bf16 running sum stops growing long before the end."""
    hidden = jnp.ones((1, 2048, 4), jnp.bfloat16)
    head = jnp.zeros((4, 2), jnp.bfloat16)
    targets = jnp.zeros((1, 2048), int)
    grad = jax.jit(jax.grad(lambda w: policy.logprobs(hidden, w, targets, 1.0, 2, 2).logp.sum()))
    gradient = grad(head)
    np.testing.assert_allclose(gradient.astype(jnp.float32)[:, 0], 1024.0, rtol=0.01)


def test_ids_that_do_not_exist_get_no_probability():
    hidden, head, _ = hidden_and_head()
    head = head.at[:, 20:].set(50.0)  # whatever stands in the padding rows
    each = [_logprobs(hidden, head, jnp.full((2, 11), i), T, 20, 4).logp for i in range(31)]
    each = np.stack(each)
    np.testing.assert_allclose(np.exp(each[:20]).sum(axis=0), 1.0, rtol=1e-5)
    assert np.isneginf(each[20:]).all()
    cut = _logprobs(hidden, head[:, :20], jnp.zeros((2, 11), int), T, 20)
    full = _logprobs(hidden, head, jnp.zeros((2, 11), int), T, 20)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), tuple(cut), tuple(full)
    )


def test_a_negative_target_has_no_probability_and_a_finite_gradient():
    hidden, head, targets = hidden_and_head()
    targets = targets.at[0, 3].set(-100)

    def total(hidden):
        out = policy.logprobs(hidden, head, targets, T, 20, 4)
        return jnp.where(targets >= 0, jnp.maximum(out.logp, -50.0), 0.0).sum() + out.entropy.sum()

    assert np.isneginf(_logprobs(hidden, head, targets, T, 31).logp[0, 3])
    value, gradient = jax.jit(jax.value_and_grad(total))(hidden)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_scorer_leaves_ids_that_do_not_exist_out(params, weights):
    config = dataclasses.replace(CONFIG, num_tokens=20)
    tokens = batch()[0] % 20
    length = np.array([10, 10, 10])
    cut, _ = _score(weights, config, tokens, length, T)
    full, _ = _score(weights, CONFIG, tokens, length, T)
    assert (cut.logp[:, 1:] > full.logp[:, 1:]).all()


@jax.jit
def decode_step(weights, new, length, keys, values):
    """Logits after one more token a row, its attention over the scorer's cache and itself."""
    cos, sin = rope.angles(CONFIG, length)
    x = policy.embed_tokens(weights["embed"], CONFIG, new)
    for w, k_old, v_old in zip(weights["layers"], keys, values, strict=True):

        def attend(q, k, v, k_old=k_old, v_old=v_old):
            q = q.reshape(3, 2, 2, 8)
            old = jnp.einsum("bgrh,bght->bgrt", q, k_old) / np.sqrt(8)
            old = jnp.where(jnp.arange(10) < length[:, None, None, None], old, -jnp.inf)
            own = jnp.einsum("bgrh,bgh->bgr", q, k)[..., None] / np.sqrt(8)
            p = jax.nn.softmax(jnp.concatenate([old, own], -1), axis=-1)
            out = jnp.einsum("bgrt,bgth->bgrh", p[..., :-1], v_old)
            return (out + p[..., -1:] * v[:, :, None]).reshape(3, 4, 8)

        x = policy.block(w, x, CONFIG, cos, sin, attend)
    x = policy.rms_norm(x, weights["final_norm"], CONFIG.norm_eps)
    return policy.logits(x, weights["head"])


def test_cache_continues_a_sequence_exactly_as_the_full_forward_does(params, weights):
    """A decode step on the scorer's keys and values: checks layouts, rotary, and what is unused."""
    tokens, length = batch()
    _, (keys, values) = _score(weights, CONFIG, tokens, length, T, keep_cache=True)
    assert [k.shape for k in keys] == [(3, 2, 8, 10)] * 2
    assert [v.shape for v in values] == [(3, 2, 10, 8)] * 2
    new = np.array([5, 6, 7], np.int32)
    logits = decode_step(weights, new, length, keys, values)
    for row, n in enumerate(length):
        text = np.append(tokens[row, :n], new[row])[None]
        full = _forward(params, CONFIG, np.pad(text, ((0, 0), (0, 10 - n))))[0, n]
        np.testing.assert_allclose(logits[row], full, atol=1e-4)


def test_unused_cache_cells_are_zero(weights):
    tokens, length = batch()
    _, (keys, values) = _score(weights, CONFIG, tokens, length, T, keep_cache=True)
    unused = np.arange(10)[None] >= length[:, None]
    for k, v in zip(keys, values, strict=True):
        assert (np.moveaxis(np.asarray(k), 3, 1)[unused] == 0).all()
        assert (np.moveaxis(np.asarray(v), 2, 1)[unused] == 0).all()


def test_a_sequence_that_is_not_finite_is_marked_and_leaves_cache_and_others_finite(weights):
    tokens, length = batch()
    tokens = np.where(tokens == 9, 8, tokens)
    tokens[1, 2] = 9  # the only row with the broken embedding
    tokens[2, 5] = 9  # behind the row's end: no effect
    broken = weights | {"embed": weights["embed"].at[9].set(jnp.nan)}
    scores, (keys, values) = _score(broken, CONFIG, tokens, length, T, keep_cache=True)
    np.testing.assert_array_equal(scores.finite, [True, False, True])
    assert all(np.isfinite(x).all() for x in (*keys, *values))
    clean, _ = _score(weights, CONFIG, tokens, length, T)
    np.testing.assert_allclose(scores.logp[0], clean.logp[0], atol=1e-6)


def test_scoring_without_cache_returns_none_and_the_same_scores(weights):
    tokens, length = batch()
    kept, _ = _score(weights, CONFIG, tokens, length, T, keep_cache=True)
    bare, cache = _score(weights, CONFIG, tokens, length, T)
    assert cache is None
    jax.tree.map(np.testing.assert_array_equal, kept, bare)


def test_logprobs_of_bf16_products_are_fp32():
    hidden, head, targets = hidden_and_head(jnp.bfloat16)
    out = _logprobs(hidden, head, targets, T, 31, 4)
    assert out.logp.dtype == out.entropy.dtype == jnp.float32
    z = np.asarray(hidden.astype(jnp.float32) @ head.astype(jnp.float32)) / T
    exact = jnp.take_along_axis(jax.nn.log_softmax(z), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(out.logp, exact, atol=1e-4)  # logits were not rounded to bf16
