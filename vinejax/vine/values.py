"""The value of a state: the mean reward of fresh continuations (VinePPO, section 4)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Vector = np.ndarray | Array


class Values(NamedTuple):
    """Estimates of V for P states."""

    mean: Float[Vector, "P"]  # 0 for a state without rollouts
    stderr: Float[Vector, "P"]  # of the mean; below two rollouts the largest it can be
    truncated_share: Float[Vector, "P"]  # of its rollouts
    count: Int[Vector, "P"]  # rollouts


def values(
    rewards: Float[Vector, "P K"],
    truncated: Bool[Vector, "P K"] | None = None,
    where: Bool[Vector, "P K"] | None = None,
    truncation_reward: float = 0.0,
) -> Values:
    """Mean reward of the rollouts that `where` keeps; truncated ones have `truncation_reward`.

    Rewards lie in [0, 1]. The mean is an unbiased estimate of the expected reward under the
    sampling distribution and its budget; its standard error is at most half the rewards' range
    over sqrt(K), a truncation reward below 0 included in the range. NumPy in,
    NumPy out (the number of states differs from call to call: nothing to compile); JAX arrays give
    JAX arrays.
    """
    np_like = jnp if isinstance(rewards, jax.Array) else np
    rewards = np_like.asarray(rewards, np_like.float32)
    if rewards.ndim != 2:
        raise ValueError(f"rewards have shape {rewards.shape}; give [states, rollouts]")
    truncated = (
        np_like.zeros(rewards.shape, bool) if truncated is None else np_like.asarray(truncated)
    )
    where = np_like.ones(rewards.shape, bool) if where is None else np_like.asarray(where)
    for name, array in (("truncated", truncated), ("where", where)):
        if array.shape != rewards.shape:
            raise ValueError(f"{name} has shape {array.shape}, rewards have {rewards.shape}")
    kept = np_like.where(truncated, np_like.float32(truncation_reward), rewards)
    kept = np_like.where(where, kept, 0)
    count = where.sum(axis=1)
    divisor = np_like.maximum(count, 1).astype(np_like.float32)
    mean = kept.sum(axis=1) / divisor
    spread = np_like.where(where, kept - mean[:, None], 0)
    variance = (spread**2).sum(axis=1) / np_like.maximum(count - 1, 1)
    largest = largest_error(truncation_reward)
    stderr = np_like.where(count > 1, np_like.sqrt(variance / divisor), largest)
    share = (where & truncated).sum(axis=1) / divisor
    return Values(mean, stderr.astype(np_like.float32), share.astype(np_like.float32), count)


def largest_error(lowest: float) -> float:
    """The standard deviation of rewards between `lowest`, or 0 if that is less, and 1, at most."""
    return 0.5 * (1 - min(lowest, 0.0))
