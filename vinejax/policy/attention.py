"""Attention over whole sequences, for training and scoring (the sampler's cache has its own).

One function, three implementations: `xla` is plain JAX and runs everywhere; `cudnn` is NVIDIA's
flash attention, for half precision; `splash` is the TPU's. The last two never hold a [T, T] array
of scores.
"""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash_kernel,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_mask
from jaxtyping import Array, Bool, Float, Int

from vinejax import sharding
from vinejax.policy.config import Attention
from vinejax.policy.numerics import precision_of

MASKED = -1e30  # finite, so that a query which sees nothing gives no NaN
LANES = 128  # the TPU kernel wants times and head sizes in multiples of it


def causal(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    where: Bool[Array, "B T"],
    segments: Int[Array, "B T"] | None = None,
    backend: Attention = "xla",
) -> Float[Array, "B T N H"]:
    """Each token attends to the real tokens up to itself, within its own segment if there are any.

    Query head n reads key/value head n // (N / G); keys and values are never repeated. The
    softmax is fp32, masked before `exp`; what stands in masked keys and values, NaN included, has
    no effect on real tokens, and what comes out at the others is finite (0 with `xla`).
    """
    k, v = (jnp.where(where[:, :, None, None], x, 0) for x in (k, v))
    return {"xla": _xla, "cudnn": _cudnn, "splash": _splash}[backend](q, k, v, where, segments)


def default_backend(platform: str, compute_dtype: str) -> Attention:
    """The fastest one on `platform` (cpu, gpu or tpu) that serves the case."""
    if platform == "gpu" and compute_dtype == "bfloat16":
        return "cudnn"
    return "splash" if platform == "tpu" else "xla"


def _xla(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    where: Bool[Array, "B T"],
    segments: Int[Array, "B T"] | None,
) -> Float[Array, "B T N H"]:
    batch, time, heads, size = q.shape
    groups, copies = k.shape[2], heads // k.shape[2]
    # One matrix product for each row and key/value head, operands in its own order: the compiler
    # makes transposed copies of anything else, in the backward pass above all.
    q = (q * size**-0.5).reshape(batch, time, groups, copies, size).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, groups, copies * time, size)
    k, v = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
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


def _ids(where: Bool[Array, "B T"], segments: Int[Array, "B T"] | None) -> Int[Array, "B T"]:
    """Equal numbers for tokens that may see each other; 0 for padding, which sees itself alone."""
    return jnp.where(where, 1 if segments is None else segments + 1, 0)


def _cudnn(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    where: Bool[Array, "B T"],
    segments: Int[Array, "B T"] | None,
) -> Float[Array, "B T N H"]:
    ids = _ids(where, segments)
    mask = (ids[:, :, None] == ids[:, None, :])[:, None]
    return jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=True, implementation="cudnn")


def _splash(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    where: Bool[Array, "B T"],
    segments: Int[Array, "B T"] | None,
    interpret: bool = False,
) -> Float[Array, "B T N H"]:
    kernel = partial(_splash_shard, interpret=interpret)
    ids = _ids(where, segments)
    if sharding.devices() == 1:
        return kernel(q, k, v, ids)
    # The compiler cannot split a kernel: it runs on each device's own rows and heads.
    of = sharding.local_spec
    each = of(("batch", None, "heads", None)), of(("batch", None, "kv_heads", None))
    mapped = jax.shard_map(
        kernel,
        in_specs=(each[0], each[1], each[1], of(("batch", None))),
        out_specs=each[0],
        check_vma=False,
    )
    return mapped(q, k, v, ids)


def _splash_shard(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    ids: Int[Array, "B T"],
    interpret: bool,
) -> Float[Array, "B T N H"]:
    time, heads, size = q.shape[1:]
    more = -time % LANES
    q, k, v = (
        jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, -size % LANES))).swapaxes(1, 2)
        for x in (q * size**-0.5, k, v)
    )
    ids = jnp.pad(ids, ((0, 0), (0, more)))
    long = time + more
    block = next(b for b in (512, 256, LANES) if long % b == 0)
    kernel = splash_kernel.make_splash_mha(
        splash_mask.MultiHeadMask([splash_mask.CausalMask((long, long))] * heads),
        block_sizes=splash_kernel.BlockSizes(
            **dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), block),
            **dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), block),
            **dict.fromkeys(("block_q_dq", "block_kv_dq"), block),
        ),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    out = cast(jax.Array, jax.vmap(kernel)(q, k, v, splash_kernel.SegmentIds(ids, ids)))
    return out.swapaxes(1, 2)[:, :time, :, :size]
