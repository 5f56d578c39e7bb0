"""One decoding step of all slots: one softmax over a row's trunks and each slot's own ring.

Letters: R rows, U slots a row, B = R * U slots in all, G key/value heads, M query heads to each of
them, H head size, L layers, W trunk cells of a row (all its trunks side by side), T ring cells.

A row's trunks are read once for all its slots: their queries form one matrix per key/value head. A
vine sees the trunk up to its own prefix by a mask; nothing is copied for it. Every slot writes its
new key and value at the same ring cell, so a step updates each cache with one slice.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int

from vinejax import policy, sharding
from vinejax.policy import rope
from vinejax.sampler import kernel

MASKED = -1e30  # finite, so that a row of masked scores gives no NaN


class Cache(NamedTuple):
    """Keys and values, one array a layer, laid out as the step's matrix products read them fastest.

    In rows of bfloat16 (`is_by_cell`) keys lie as values do. Cells that hold nothing are finite
    (zero at first): a masked score becomes exactly 0 after the softmax, and 0 times a finite value
    is 0.
    """

    keys: list[Float[Array, "rows G H cells"]]
    values: list[Float[Array, "rows G cells H"]]


class Ring(NamedTuple):
    """Each slot's own keys and values: T = N * t cells, the keys in N blocks of t.

    A product of a slot's few queries with 64 columns at a time is four times as fast in fp32 on CPU
    as one with all of them. Keys in bfloat16 lie as values do, [B, G, T, H]: accelerators write a
    cell faster that way, and NVIDIA's attention wants it.
    """

    keys: list[Float[Array, "B G N H t"]]
    values: list[Float[Array, "B G T H"]]

    @property
    def by_cell(self) -> bool:
        """Whether keys lie as values do, here and in the rows."""
        return self.keys[0].ndim == 4


HEADS = (None, "kv_heads")  # the axes of a cache that devices may share
RING_BLOCK = 64
LANES = 128


def empty_ring(config: policy.LlamaConfig, slots: int, cells: int) -> Ring:
    """A ring of zeros for each slot."""
    keys, values = empty_cache(config, slots, cells)
    if is_by_cell(config):
        return Ring([jnp.zeros_like(v) for v in values], values)
    # Two blocks at least: around one alone XLA:CPU copies the ring, four times a layer and step.
    most = min(RING_BLOCK, max(1, cells // 2))
    block = max(d for d in range(1, most + 1) if cells % d == 0)
    shape = (slots, config.kv_heads, cells // block, config.head_dim, block)
    return Ring([k.reshape(shape) for k in keys], values)


def empty_rows(config: policy.LlamaConfig, rows: int, cells: int) -> Cache:
    """The cache of zeros that the trunks of `rows` rows stand in."""
    keys, values = empty_cache(config, rows, cells)
    return Cache([jnp.zeros_like(v) for v in values] if is_by_cell(config) else keys, values)


def is_by_cell(config: policy.LlamaConfig) -> bool:
    """Whether the keys of rows and rings lie as values do: [.., cells, H]."""
    return config.cache_dtype == "bfloat16"


def unblocked(keys: Float[Array, "B G N H t"]) -> Float[Array, "B G H T"]:
    """A ring's keys in the layout of a trunk's."""
    slots, groups, blocks, size, block = keys.shape
    return keys.swapaxes(2, 3).reshape(slots, groups, size, blocks * block)


def empty_cache(config: policy.LlamaConfig, rows: int, cells: int) -> Cache:
    """A cache of zeros for `rows` rows."""
    dtype = jnp.dtype(config.cache_dtype)
    keys = [
        jnp.zeros((rows, config.kv_heads, config.head_dim, cells), dtype)
        for _ in range(config.layers)
    ]
    values = [
        jnp.zeros((rows, config.kv_heads, cells, config.head_dim), dtype)
        for _ in range(config.layers)
    ]
    return Cache(*([sharding.constrain(x, HEADS) for x in part] for part in (keys, values)))


def step(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    token: Int[Array, "B"],
    position: Int[Array, "B"],
    trunks: Cache,
    ring: Ring,
    in_trunk: Bool[Array, "B W"],
    in_ring: Bool[Array, "B T"],
    cell: Int[Array, ""],
    is_frozen: Bool[Array, "B"],
) -> tuple[Float[Array, "B V"], Ring, Bool[Array, "B"]]:
    """Feeds one token a slot at `position`.

    Returns fp32 logits, the ring with the token's keys and values in `cell`, and which slots had
    finite ones (the others wrote zeros). Frozen slots keep what `cell` held.
    """
    new = Ring(list(ring.keys), list(ring.values))
    by_cell, block = ring.by_cell, ring.keys[0].shape[-1]
    blocked = (0, 0, cell // block, 0, cell % block)
    plain = (0, 0, cell, 0)
    cos, sin = rope.angles(config, position)
    is_finite = jnp.ones(token.shape, bool)
    x = policy.embed_tokens(weights["embed"], config, token)
    for layer, w in enumerate(weights["layers"]):

        def attend(
            q: Float[Array, "B N H"],
            k: Float[Array, "B G H"],
            v: Float[Array, "B G H"],
            layer: int = layer,
        ) -> Float[Array, "B N H"]:
            nonlocal is_finite
            ok = jnp.isfinite(k).all(axis=(-1, -2)) & jnp.isfinite(v).all(axis=(-1, -2))
            is_finite &= ok
            k, v = (jnp.where(ok[:, None, None], a, 0).astype(config.cache_dtype) for a in (k, v))
            at, one = (plain, k[:, :, None]) if by_cell else (blocked, k[:, :, None, :, None])
            new.keys[layer] = _write(new.keys[layer], one, at, is_frozen)
            new.values[layer] = _write(new.values[layer], v[:, :, None], plain, is_frozen)
            own = (new.keys[layer], new.values[layer], in_ring)
            far = (trunks.keys[layer], trunks.values[layer], in_trunk)
            attend = kernel.attend if config.decode_attention == "cudnn" else attend_plainly
            return attend(q.astype(config.cache_dtype), far, own).astype(q.dtype)

        x = policy.block(w, x, config, cos, sin, attend)
    x = policy.rms_norm(x, weights["final_norm"], config.norm_eps)
    logits = sharding.constrain(policy.logits(x, weights["head"]), (None, "vocab"))
    # Drawn from in whole; the logits come together, not the head.
    return sharding.constrain(logits, (None, None)), new, is_finite


def _write(
    ring: Float[Array, "B ..."],
    new: Float[Array, "B ..."],
    place: tuple[Int[Array, ""] | int, ...],
    is_frozen: Bool[Array, "B"],
) -> Float[Array, "B ..."]:
    """The ring with `new` (one cell) at `place`, but for the frozen slots."""
    old = lax.dynamic_slice(ring, place, new.shape)
    is_frozen = is_frozen.reshape(-1, *[1] * (new.ndim - 1))
    return compact(lax.dynamic_update_slice(ring, jnp.where(is_frozen, old, new), place))


def compact(cache: Float[Array, "..."]) -> Float[Array, "..."]:
    """The cache as it is, in the memory layout that the loop is to keep it in on a TPU.

    Left alone, the compiler updates a cache in one layout and reads it in another, and copies the
    whole of it in every step. Cells come last where a head is no whole number of lanes, which would
    be padded.
    """
    if sharding.size("tensor") > 1:
        # The compiler would bring the whole cache together at a constraint of its layout.
        return sharding.constrain(cache, HEADS)
    if policy.platform() != "tpu" or cache.ndim != 4:
        return cache
    order = (0, 1, 2, 3) if cache.shape[-1] % LANES == 0 else (0, 1, 3, 2)
    return with_layout_constraint(cache, Layout(order))


def attend_plainly(
    q: Float[Array, "B N H"],
    trunk: tuple[Float[Array, "R G H W"], Float[Array, "R G W H"], Bool[Array, "B W"]],
    own: tuple[Float[Array, "B G N H t"], Float[Array, "B G T H"], Bool[Array, "B T"]],
) -> Float[Array, "B N H"]:
    """Softmax attention over two caches at once: exponentials share one maximum and one sum."""
    trunk_keys, trunk_values, in_trunk = trunk
    ring_keys, ring_values, in_ring = own
    if ring_keys.ndim == 4:
        trunk_keys, ring_keys = trunk_keys.swapaxes(2, 3), ring_keys.swapaxes(2, 3)[:, :, None]
    (rows, groups, size, _), (slots, _, blocks, _, block) = trunk_keys.shape, ring_keys.shape
    per_row, per_group = slots // rows, q.shape[1] // groups
    q = (q * size**-0.5).reshape(slots, groups, per_group, size)
    by_row = q.reshape(rows, per_row, groups, per_group, size).swapaxes(1, 2)
    by_row = by_row.reshape(rows, groups, per_row * per_group, size)

    product = partial(
        jnp.einsum, preferred_element_type=jnp.float32, precision=policy.precision_of(q.dtype)
    )
    far = product("rgqh,rghw->rgqw", by_row, trunk_keys)
    far = far.reshape(rows, groups, per_row, per_group, -1)
    far = jnp.where(in_trunk.reshape(rows, 1, per_row, 1, -1), far, MASKED)
    q = jnp.broadcast_to(q[:, :, None], (slots, groups, blocks, per_group, size))
    near = product("bgnmh,bgnht->bgnmt", q, ring_keys)
    near = jnp.where(in_ring.reshape(slots, 1, blocks, 1, block), near, MASKED)

    def to_rows(x: Float[Array, "B G M"]) -> Float[Array, "R G U M"]:
        return x.reshape(rows, per_row, groups, per_group).swapaxes(1, 2)

    top = jnp.maximum(far.max(axis=-1), to_rows(near.max(axis=(2, 4))))
    top_by_slot = top.swapaxes(1, 2).reshape(slots, groups, 1, per_group, 1)
    far = jnp.exp(far - top[..., None])
    near = jnp.exp(near - top_by_slot)
    total = far.sum(axis=-1).swapaxes(1, 2).reshape(slots, groups, per_group)
    total += near.sum(axis=(2, 4))

    dtype = trunk_values.dtype
    far = far.astype(dtype).reshape(rows, groups, per_row * per_group, -1)
    from_trunk = product("rgqw,rgwh->rgqh", far, trunk_values)
    from_trunk = from_trunk.reshape(rows, groups, per_row, per_group, size).swapaxes(1, 2)
    near = near.astype(dtype).swapaxes(2, 3).reshape(slots, groups, per_group, blocks * block)
    from_ring = product("bgmt,bgth->bgmh", near, ring_values)
    out = from_trunk.reshape(slots, groups, per_group, size) + from_ring
    return (out / total[..., None]).astype(q.dtype).reshape(slots, groups * per_group, size)
