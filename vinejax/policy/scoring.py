"""From tokens to log-probabilities and entropies, without ever holding a [B, T, V] array.

Everything is fp32 nats under the temperature alone (no top-p, no top-k): the `logprob_full` of the
sampler. The shift by one happens here, in `_next`, and nowhere else: logp[b, t] is the
log-probability of tokens[b, t] given everything before it.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from vinejax import sharding
from vinejax.policy import attention, llama, rope
from vinejax.policy.config import LlamaConfig
from vinejax.policy.numerics import logits, rms_norm

Cache = tuple[list[jax.Array], list[jax.Array]]

LOGIT_BYTES = 1 << 29  # fp32 logits that may live at one time, on each device


class LogProbs(NamedTuple):
    """Log-probabilities of given tokens, and the entropies of the distributions they came from."""

    logp: Float[Array, "B T"]
    entropy: Float[Array, "B T"]


@struct.dataclass
class Scores:
    """What one pass over sequences says about their tokens; 0 at t = 0 and from `length` on."""

    logp: Float[Array, "B T"]  # nats; [b, t] belongs to tokens[b, t]
    entropy: Float[Array, "B T"]  # nats; of the distribution tokens[b, t] was drawn from
    finite: Bool[Array, " B"]  # False: a key, value or logit is NaN or infinite, logp means nothing


def logprobs(
    hidden: Float[Array, "B T D"],
    head: Float[Array, "D V"],
    targets: Int[Array, "B T"],
    temperature: float | jax.Array,
    num_tokens: int,
    chunk: int | None = None,
) -> LogProbs:
    """Log-probability of targets under softmax(hidden @ head / temperature), and its entropy.

    Ids from `num_tokens` on do not exist: they get no probability, and as a target (like any
    negative id) they get -inf. Logits live for `chunk` time steps only (None: as many as make
    LOGIT_BYTES), in the gradient too, which recomputes them; value and gradient are those of the
    plain formula. `temperature` is positive.
    """
    room = LOGIT_BYTES * sharding.devices()
    chunk = chunk or max(1, room // (4 * hidden.shape[0] * head.shape[1]))

    # Chunks add up the head's gradient in the type it is held in here: fp32, not compute dtype.
    wide = head.astype(jnp.float32)

    @jax.checkpoint
    def one(x: jax.Array, target: jax.Array) -> LogProbs:
        z = logits(x, wide.astype(head.dtype)) / temperature
        exists = jnp.arange(z.shape[-1]) < num_tokens
        z = jnp.where(exists, z, -jnp.inf)
        # The shift cancels; without it large logits would cost the small log-probabilities digits.
        z = z - jax.lax.stop_gradient(jnp.max(z, axis=-1, keepdims=True))
        log_total = jax.nn.logsumexp(z, axis=-1)
        is_id = (target >= 0) & (target < num_tokens)
        chosen = _chosen(z, jnp.where(is_id, target, 0))
        logp = z - log_total[..., None]
        surprise = jnp.where(exists, -logp, 0.0)  # 0 * inf in the entropy would be NaN
        entropy = jnp.sum(jnp.exp(logp) * surprise, axis=-1)
        return LogProbs(jnp.where(is_id, chosen - log_total, -jnp.inf), entropy)

    batch, time, size = hidden.shape
    if time <= chunk:
        return one(hidden, targets)
    count = -(-time // chunk)
    extra = count * chunk - time
    x = jnp.pad(hidden, ((0, 0), (0, extra), (0, 0))).reshape(batch, count, chunk, size)
    target = jnp.pad(targets, ((0, 0), (0, extra))).reshape(batch, count, chunk)
    out = jax.lax.map(lambda pair: one(*pair), (jnp.moveaxis(x, 1, 0), jnp.moveaxis(target, 1, 0)))
    return LogProbs(*(jnp.moveaxis(a, 0, 1).reshape(batch, count * chunk)[:, :time] for a in out))


def _chosen(z: Float[Array, "B T V"], target: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """The logit of each target.

    Where devices share the vocabulary, each adds what it has of it: a number, instead of all
    logits, goes between them.
    """
    if sharding.size("tensor") == 1:
        return jnp.take_along_axis(z, target[..., None], axis=-1)[..., 0]
    is_target = jnp.arange(z.shape[-1]) == target[..., None]
    return jnp.sum(jnp.where(is_target, z, 0.0), axis=-1)


def sequence_logprobs(
    params: llama.Params,
    config: LlamaConfig,
    tokens: Int[Array, "B T"],
    where: Bool[Array, "B T"],
    temperature: float | jax.Array = 1.0,
    segments: Int[Array, "B T"] | None = None,
    at: Int[Array, "B N"] | None = None,
    chunk: int | None = None,
) -> LogProbs:
    """Log-probability of tokens[b, t] given what is before it; differentiable in `params`.

    A token that nothing precedes (the first of a row or segment) and padding have 0, not a number
    to be trained on. With `at` only the tokens with these indices are scored, the others have 0:
    so much less work for the head. The index 0 fills up a row.
    """
    x = llama.hidden(params, config, tokens, where, segments=segments)
    matrix = llama.head(params, config)
    return _next(x, matrix, config, tokens, where, temperature, segments, at, chunk)


def _next(
    x: Float[Array, "B T D"],
    head: Float[Array, "D V"],
    config: LlamaConfig,
    tokens: Int[Array, "B T"],
    where: Bool[Array, "B T"],
    temperature: float | jax.Array,
    segments: Int[Array, "B T"] | None,
    at: Int[Array, "B N"] | None,
    chunk: int | None,
) -> LogProbs:
    """Score tokens[:, 1:] from x[:, :-1]; index t of the result names the token produced."""
    is_scored = where[:, 1:] & where[:, :-1]
    if segments is not None:
        is_scored = is_scored & (segments[:, 1:] == segments[:, :-1])
    if at is None:
        out = logprobs(x[:, :-1], head, tokens[:, 1:], temperature, config.num_tokens, chunk)
        return LogProbs(*(jnp.pad(jnp.where(is_scored, a, 0.0), ((0, 0), (1, 0))) for a in out))
    before = jnp.take_along_axis(x, jnp.maximum(at - 1, 0)[..., None], axis=1)
    target = jnp.take_along_axis(tokens, at, axis=1)
    chosen = jnp.take_along_axis(jnp.pad(is_scored, ((0, 0), (1, 0))), at, axis=1)
    out = logprobs(before, head, target, temperature, config.num_tokens, chunk)
    nothing = jnp.zeros(tokens.shape, jnp.float32)
    # By rows, which the compiler sees to be independent: each device fills its own.
    put = jax.vmap(lambda row, at, a: row.at[at].add(a))
    return LogProbs(*(put(nothing, at, jnp.where(chosen, a, 0.0)) for a in out))


def score(
    weights: llama.DecodeWeights,
    config: LlamaConfig,
    tokens: Int[Array, "B T"],
    length: Int[Array, " B"],
    temperature: float | jax.Array = 1.0,
    keep_cache: bool = False,
    segments: Int[Array, "B T"] | None = None,
    at: Int[Array, "B N"] | None = None,
    chunk: int | None = None,
) -> tuple[Scores, Cache | None]:
    """Score the first `length` tokens of each row under `unstack`ed weights; with its KV if wanted.

    `segments` and `at` as in `sequence_logprobs`.

    The cache is (K, V), lists with one array a layer in the sampler's layouts: K [B, G, H, T]
    with rotary applied, V [B, G, T, H], `config.cache_dtype`. Cells that are unused (t >= length)
    or not finite hold 0; `finite` is False for the rows of the latter. Jit with `config`,
    `keep_cache` and `chunk` static.
    """
    chex.assert_rank([tokens, length], [2, 1])
    chex.assert_equal_shape_prefix([tokens, length], 1)
    where = jnp.arange(tokens.shape[1])[None, :] < length[:, None]
    cos, sin = rope.angles(config, rope.positions_of(where, segments))
    keys: list[jax.Array] = []
    values: list[jax.Array] = []
    finite = jnp.ones(tokens.shape[0], bool)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        nonlocal finite
        for x in (k, v):
            finite = finite & jnp.all(jnp.isfinite(x) | ~where[:, :, None, None], axis=(1, 2, 3))
        if keep_cache:
            kept = (_cells(a, where).astype(config.cache_dtype) for a in (k, v))
            keys.append(next(kept).transpose(0, 2, 3, 1))
            values.append(next(kept).transpose(0, 2, 1, 3))
        return attention.causal(q, k, v, where, segments, config.attention)

    x = llama.embed_tokens(weights["embed"], config, tokens, where)
    for w in weights["layers"]:
        x = llama.block(w, x, config, cos, sin, attend)
    x = rms_norm(x, weights["final_norm"], config.norm_eps)
    out = _next(x, weights["head"], config, tokens, where, temperature, segments, at, chunk)
    finite = finite & jnp.all(jnp.isfinite(x) | ~where[:, :, None], axis=(1, 2))
    # A token without probability is -inf by right; NaN entropy means the logits were not finite.
    finite = finite & jnp.all(jnp.isfinite(out.entropy), axis=1)
    return Scores(out.logp, out.entropy, finite), (keys, values) if keep_cache else None


def _cells(x: Float[Array, "B T G H"], where: Bool[Array, "B T"]) -> Float[Array, "B T G H"]:
    return jnp.where(where[:, :, None, None] & jnp.isfinite(x), x, 0)
