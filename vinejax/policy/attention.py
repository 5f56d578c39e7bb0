"""Attention over whole sequences, for training and scoring (the sampler's cache has its own)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vinejax.policy.numerics import precision_of


def causal(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    where: Bool[Array, "B T"],
    segments: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T N H"]:
    """Each token attends to the real tokens up to itself, within its own segment if there are any.

    Query head n reads key/value head n // (N / G); keys and values are never repeated. The
    softmax is fp32, masked before `exp`; a query that may see nothing gets 0, and what stands in
    masked keys and values, NaN included, has no effect.
    """
    batch, time, heads, size = q.shape
    groups = k.shape[2]
    precision = precision_of(q.dtype)
    k = jnp.where(where[:, :, None, None], k, 0)
    v = jnp.where(where[:, :, None, None], v, 0)
    q = q.reshape(batch, time, groups, heads // groups, size)
    score = jnp.einsum(
        "btgrh,bsgh->bgrts", q, k, precision=precision, preferred_element_type=jnp.float32
    )
    score = score * size**-0.5
    seen = jnp.tril(jnp.ones((time, time), bool))[None] & where[:, None, :]
    if segments is not None:
        seen = seen & (segments[:, :, None] == segments[:, None, :])
    seen = seen[:, None, None]
    top = jnp.max(jnp.where(seen, score, -jnp.inf), axis=-1, keepdims=True)
    # A query that sees nothing has no maximum. The shift cancels, so it carries no gradient.
    top = jax.lax.stop_gradient(jnp.where(jnp.isneginf(top), 0.0, top))
    weight = jnp.where(seen, jnp.exp(jnp.where(seen, score - top, 0.0)), 0.0)
    total = weight.sum(axis=-1, keepdims=True)
    weight = weight / jnp.where(total == 0, 1.0, total)
    out = jnp.einsum("bgrts,bsgh->btgrh", weight.astype(v.dtype), v, precision=precision)
    return out.reshape(batch, time, heads, size)
