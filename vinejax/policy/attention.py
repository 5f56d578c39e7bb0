"""Attention over whole sequences, for training and scoring (the sampler's cache has its own)."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vinejax.policy.numerics import precision_of

MASKED = -1e30  # finite, so that a query which sees nothing gives no NaN


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
    groups, copies = k.shape[2], heads // k.shape[2]
    # One matrix product for each row and key/value head, operands in its own order: the compiler
    # makes transposed copies of anything else, in the backward pass above all.
    q = (q * size**-0.5).reshape(batch, time, groups, copies, size).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, groups, copies * time, size)
    k = jnp.where(where[:, :, None, None], k, 0).transpose(0, 2, 3, 1)
    v = jnp.where(where[:, :, None, None], v, 0).transpose(0, 2, 1, 3)
    product = partial(jnp.matmul, precision=precision_of(q.dtype))
    score = product(q, k, preferred_element_type=jnp.float32)
    score = score.reshape(batch, groups, copies, time, time)
    seen = jnp.tril(jnp.ones((time, time), bool))[None] & where[:, None, :]
    if segments is not None:
        seen = seen & (segments[:, :, None] == segments[:, None, :])
    score = jnp.where(seen[:, None, None], score, MASKED)
    # The shift cancels, so it carries no gradient.
    top = jax.lax.stop_gradient(jnp.max(score, axis=-1, keepdims=True))
    weight = jnp.where(seen[:, None, None], jnp.exp(score - top), 0.0)
    total = weight.sum(axis=-1).reshape(batch, groups, copies * time, 1)
    weight = weight.astype(v.dtype).reshape(batch, groups, copies * time, time)
    out = product(weight, v, preferred_element_type=jnp.float32)
    out = (out / jnp.where(total == 0, 1.0, total)).astype(q.dtype)
    out = out.reshape(batch, groups, copies, time, size).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, time, heads, size)
