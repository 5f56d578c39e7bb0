"""Advantages from the other samples of the same prompt: one number for all tokens of a response.

NumPy in, NumPy out; JAX arrays give JAX arrays. Differences are taken from the first reward, so a
group of equal rewards gives exactly 0, whatever the reward.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Vector = np.ndarray | Array


def grpo(rewards: Float[Vector, "n"], std: bool = True) -> Float[Vector, "n"]:
    """(R_i - mean R) / std R over the n samples of one prompt; 0 for equal rewards and for n = 1.

    The standard deviation divides by n - 1, without an epsilon: paper and authors leave both open.
    Without `std` it is R_i - mean R (Dr. GRPO, arXiv 2503.20783).
    """
    above = _from_first(rewards)
    deviation = above - above.mean()
    if not std:
        return deviation
    variance = (deviation**2).sum() / max(above.shape[0] - 1, 1)
    return deviation / (variance + (variance == 0)) ** 0.5


def rloo(rewards: Float[Vector, "n"]) -> Float[Vector, "n"]:
    """R_i - the mean of the other n - 1 rewards of the prompt; 0 for n = 1, which has no baseline.

    VinePPO with one step a response and V(s_0) = that leave-one-out mean.
    """
    above = _from_first(rewards)
    n = above.shape[0]
    return (n * above - above.sum()) / max(n - 1, 1)


def _from_first(rewards: Vector) -> Vector:
    rewards = (
        rewards.astype(jnp.float32)
        if isinstance(rewards, jax.Array)
        else np.asarray(rewards, np.float32)
    )
    if rewards.ndim != 1 or rewards.shape[0] == 0:
        raise ValueError(
            f"rewards have shape {rewards.shape}; give those of one prompt's samples, at least one"
        )
    return rewards - rewards[0]
