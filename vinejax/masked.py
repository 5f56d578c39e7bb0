"""Sums and statistics over the kept entries of an array.

`where` is boolean and names what is kept. It is applied with `jnp.where` before any arithmetic, so
a NaN or an infinity under the mask reaches neither the value nor the gradient. Everything is
computed in float32.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Axis = int | tuple[int, ...] | None

# The authors' constant; it sits under the square root, beside the variance.
WHITEN_EPS = 1e-8


def keep(x: Float[Array, "..."], where: Bool[Array, "..."]) -> Float[Array, "..."]:
    """x in float32 with 0 in place of everything that `where` does not keep."""
    return jnp.where(where, x.astype(jnp.float32), 0.0)


def sum(
    x: Float[Array, "..."], where: Bool[Array, "..."], axis: Axis = None
) -> Float[Array, "..."]:
    """Sum of the kept entries; 0 when none is kept."""
    return keep(x, where).sum(axis)


def count(where: Bool[Array, "..."], axis: Axis = None) -> Float[Array, "..."]:
    """Number of kept entries, as float32 (exact up to 2**24)."""
    return where.astype(jnp.float32).sum(axis)


def mean(
    x: Float[Array, "..."],
    where: Bool[Array, "..."],
    denominator: Float[Array, "..."] | float | None = None,
    axis: Axis = None,
) -> Float[Array, "..."]:
    """Sum of the kept entries over `denominator` (None: how many are kept); 0 over 0 is 0."""
    below = count(where, axis) if denominator is None else jnp.asarray(denominator, jnp.float32)
    return sum(x, where, axis) / jnp.where(below == 0, 1.0, below)


def var(x: Float[Array, "..."], where: Bool[Array, "..."]) -> Float[Array, ""]:
    """Unbiased variance (n - 1 below) of all kept entries; 0 for fewer than two."""
    return sum(jnp.square(_deviation(x, where)), where) / jnp.maximum(count(where) - 1.0, 1.0)


def whiten(x: Float[Array, "..."], where: Bool[Array, "..."]) -> Float[Array, "..."]:
    """(x - mean) / sqrt(variance + 1e-8) over the kept entries, 0 elsewhere.

    One kept entry gives exactly 0, and so do entries that are all equal.
    """
    return _deviation(x, where) * jax.lax.rsqrt(var(x, where) + WHITEN_EPS)


def _deviation(x: Float[Array, "..."], where: Bool[Array, "..."]) -> Float[Array, "..."]:
    """x - mean on the kept entries, 0 elsewhere.

    Measured from the lowest entry, so equal entries deviate by exactly 0: whitening would blow up
    the rounding of their mean by 1 / sqrt(1e-8) = 1e4.
    """
    x = x.astype(jnp.float32)
    lowest = jax.lax.stop_gradient(jnp.min(jnp.where(where, x, jnp.inf)))
    above = keep(x - lowest, where)
    return keep(above - mean(above, where), where)
