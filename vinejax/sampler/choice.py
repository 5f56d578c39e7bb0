"""Which attention a decoding step takes: NVIDIA's kernel where it is right on this very device."""

import logging
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from vinejax import policy
from vinejax.sampler import decode, kernel

# Largest difference of an output, in standard deviations of them all. Roundings of weights and
# results to bfloat16 come to 0.03, a scale wrong by 2 % to 0.1, a cell too many or too few to 4.
TOLERANCE = 0.06
ROWS, PER_ROW, CELLS, RING = 2, 8, 256, 128


def decode_attention(config: policy.LlamaConfig) -> Literal["xla", "cudnn"]:
    """`cudnn` on an NVIDIA GPU with bfloat16 caches, if it agrees there with `xla`; else `xla`.

    cuDNN's kernel moves a third fewer bytes, but which versions of the library and which GPUs
    compute it rightly is not for us to know ahead: so it is tried, once a process and shape.
    """
    if policy.platform() != "gpu" or config.cache_dtype != "bfloat16":
        return "xla"
    if jax.default_backend() != "gpu":
        return "cudnn"  # compiled ahead of time, where nothing can be tried
    return "cudnn" if agrees(config.heads, config.kv_heads, config.head_dim) else "xla"


@lru_cache
def agrees(heads: int, kv_heads: int, head_dim: int) -> bool:
    """Whether both attentions come to the same outputs on a small random case of these sizes.

    A kernel that does not run at all does not agree; a warning in the log says why.
    """
    rng = np.random.default_rng(0)
    slots = ROWS * PER_ROW

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.bfloat16)

    def interval(cells: int) -> jax.Array:
        ends = np.sort(rng.integers(0, cells + 1, (slots, 2, 1)), axis=1)
        at = np.arange(cells)
        return jnp.asarray((at >= ends[:, 0]) & (at < ends[:, 1]))

    def cells(rows: int, count: int) -> jax.Array:
        return normal(rows, kv_heads, count, head_dim)

    q = 3 * normal(slots, heads, head_dim)
    far = (cells(ROWS, CELLS), cells(ROWS, CELLS), interval(CELLS))
    in_ring = interval(RING).at[:, 0].set(True)  # a slot sees its newest token at least
    near = (cells(slots, RING), cells(slots, RING), in_ring)
    expected = np.asarray(decode.attend_plainly(q, far, near), np.float32)
    try:
        found = np.asarray(kernel.attend(q, far, near), np.float32)
    except Exception as error:  # whatever the library says, the run can go on
        logging.getLogger(__name__).warning("no cuDNN attention in decoding: %s", error)
        return False
    worst = np.abs(found - expected).max() / expected.std()
    if not worst <= TOLERANCE:  # NaN does not agree either
        logging.getLogger(__name__).warning(
            "no cuDNN attention in decoding: it differs from plain attention by %.2f", worst
        )
        return False
    return True
