"""A step's attention on NVIDIA GPUs, by cuDNN: no score is ever written to memory.

Letters as in `decode`; caches have their cells before the heads' size, in bfloat16.
"""

from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

HIDDEN = -1e30  # finite, so that a slot that sees nothing of its trunk has no NaN

By = tuple[Float[Array, "n G cells H"], Float[Array, "n G cells H"], Bool[Array, "B cells"]]


def attend(q: Float[Array, "B N H"], trunk: By, own: By) -> Float[Array, "B N H"]:
    """Softmax attention over two caches, each with a softmax of its own, weighted by their sums."""
    (rows, groups, _, size), slots = trunk[0].shape, len(q)
    per_row, per_group = slots // rows, q.shape[1] // groups
    q = q.reshape(slots, groups, per_group, size)
    by_row = q.reshape(rows, per_row, groups, per_group, size).swapaxes(1, 2)
    by_row = by_row.reshape(rows, groups, per_row * per_group, size)
    in_trunk = trunk[2].reshape(rows, per_row, 1, -1).repeat(per_group, axis=2)
    in_trunk = in_trunk.reshape(rows, 1, per_row * per_group, -1)
    in_ring = own[2][:, None, None].repeat(per_group, axis=2)

    def by_slot(x: Float[Array, "R G UM ..."]) -> Float[Array, "B G M ..."]:
        x = x.reshape(rows, groups, per_row, per_group, *x.shape[3:]).swapaxes(1, 2)
        return x.reshape(slots, groups, per_group, *x.shape[4:])

    far, far_log = (by_slot(x) for x in _cudnn(by_row, trunk[0], trunk[1], in_trunk))
    near, near_log = _cudnn(q, own[0], own[1], in_ring)
    share = jax.nn.sigmoid(far_log - near_log)[..., None]
    out = share * far.astype(jnp.float32) + (1 - share) * near.astype(jnp.float32)
    return out.reshape(slots, groups * per_group, size)


def _cudnn(
    q: Float[Array, "n G q H"],
    keys: Float[Array, "n G cells H"],
    values: Float[Array, "n G cells H"],
    where: Bool[Array, "n 1 q cells"],
) -> tuple[Float[Array, "n G q H"], Float[Array, "n G q"]]:
    """Attention, and the logarithm of its softmax's sum in fp32.

    The public `jax.nn.dot_product_attention` rounds that logarithm to bfloat16, which is an error
    of percents in the weights of the two caches, and takes no cache with the heads first.
    """
    from jax._src.cudnn.fused_attention_stablehlo import dot_product_attention

    bias = jnp.where(where, 0, HIDDEN).astype(q.dtype)
    run = partial(dot_product_attention, scale=q.shape[-1] ** -0.5, qkv_layout="BNTH")
    out, log_total = cast(
        tuple[Array, Array], run(q, keys, values, bias=bias, return_residual=True)
    )
    return out, log_total
