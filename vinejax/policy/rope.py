"""Rotary positions: frequencies, angles, and the rotation (rotate-half, as Llama's weights expect).

Angles are fp32 whatever the compute type: in bf16 positions above 256 are no longer distinct, and
cosines are wrong by up to 0.5 within the first 256. See RoFormer (arXiv 2104.09864), section 3.2.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vinejax.policy.config import LlamaConfig, RopeScaling


def frequencies(config: LlamaConfig) -> np.ndarray:
    """The H/2 rotation speeds in radians a position, fp32, with `config.rope_scaling` applied."""
    exponent = np.arange(0, config.head_dim, 2) / config.head_dim
    speed = 1.0 / config.rope_theta**exponent
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "linear":
        speed = speed / scaling.factor
    elif scaling is not None:
        speed = _llama3(speed, scaling)
    return speed.astype(np.float32)


def _llama3(speed: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Slow rotations are divided by the factor, fast ones kept, those between are interpolated."""
    context = scaling.original_max_positions
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = context * speed / (2 * math.pi)  # full rotations within the original context
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - share) * speed / scaling.factor + share * speed


def angles(
    config: LlamaConfig, positions: Int[Array, "..."]
) -> tuple[Float[Array, "... H/2"], Float[Array, "... H/2"]]:
    """Cosine and sine of each position's rotation angles, fp32."""
    angle = positions[..., None].astype(jnp.float32) * frequencies(config)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(
    x: Float[Array, "... N H"], cos: Float[Array, "... H/2"], sin: Float[Array, "... H/2"]
) -> Float[Array, "... N H"]:
    """Rotate the pairs (i, i + H/2) of every head; computed in fp32, returned in x's type."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[..., None, :], sin[..., None, :]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)


def positions_of(where: jax.Array, segments: jax.Array | None = None) -> Int[Array, "B T"]:
    """Positions that count real tokens only, from 0; they start again at each new segment id."""
    if segments is None:
        return jnp.maximum(jnp.cumsum(where, axis=1) - 1, 0)
    index = jnp.arange(segments.shape[1])[None, :]
    is_new = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return index - jax.lax.cummax(jnp.where(is_new, index, 0), axis=1)
