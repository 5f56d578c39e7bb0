"""VinePPO's step advantages: differences of Monte Carlo values, and how they reach the tokens.

A response with n steps has states s_0 (the prompt) to s_n (terminal, worth 0, never sampled).
Rewards are 0 except after the last step, and gamma = lambda = 1. Responses differ in n, so this is
host arithmetic: NumPy in, NumPy out, nothing to compile; JAX arrays and tracers give JAX arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

Vector = np.ndarray | Array


def vine(values: Any, reward: float | Array) -> Float[Vector, "n"]:
    """A_i = V(s_{i+1}) - V(s_i), the last one reward - V(s_{n-1}), for V(s_0) ... V(s_{n-1}).

    They telescope: the sum is reward - V(s_0). `values` is an array [n] or a record with its values
    in the field `mean` (`vine.Values`). Raises ValueError without any value: a response has at
    least one step.
    """
    mean = getattr(values, "mean", values)
    before = _floats(values if callable(mean) else mean)
    if before.ndim != 1 or before.shape[0] == 0:
        raise ValueError(
            f"values have shape {before.shape}; give V(s_0) ... V(s_n-1) of one response, n >= 1"
        )
    np_like = jnp if isinstance(before, jax.Array) else np
    after = np_like.concatenate(
        [before[1:], np_like.reshape(np_like.asarray(reward, before.dtype), (1,))]
    )
    return after - before


def cap(values: Vector, reward: float | Array, max_step: int | None) -> Float[Vector, "n"]:
    """Values with the trajectory's reward in place of each whose index is above `max_step`.

    That is V_i = r_i + V_{i+1} filled in backwards, as the authors do (GSM8K: 25): the step that
    leaves state `max_step` receives all that is left, later steps get exactly 0. None: no cap.
    """
    values = _floats(values)
    if max_step is None:
        return values
    np_like = jnp if isinstance(values, jax.Array) else np
    beyond = np.arange(values.shape[0]) > max_step
    return np_like.where(beyond, np_like.asarray(reward, values.dtype), values)


def spread(step_advantages: Vector, step_of_token: Int[Vector, "T"]) -> Float[Vector, "T"]:
    """Each token's advantage is that of its step; tokens of no step (-1: prompt, padding) get 0."""
    steps = _floats(step_advantages)
    np_like = jnp if isinstance(steps, jax.Array) or isinstance(step_of_token, jax.Array) else np
    step_of_token = np_like.asarray(step_of_token)
    return np_like.where(
        step_of_token >= 0, steps[np_like.maximum(step_of_token, 0)], np_like.float32(0)
    )


def permute(
    step_advantages: Vector, rng: np.random.Generator | Key[Array, ""]
) -> Float[np.ndarray, "n"]:
    """The same step advantages in random order: the ablation that asks whether credit matters.

    Their sum stays. A JAX key seeds a NumPy generator: n varies, and `jax.random.permutation` would
    compile for each n.
    """
    if not isinstance(rng, np.random.Generator):
        rng = np.random.default_rng(np.asarray(jax.random.key_data(rng)))
    return rng.permutation(np.asarray(step_advantages, np.float32))


def _floats(x: Any) -> Vector:
    return x.astype(jnp.float32) if isinstance(x, jax.Array) else np.asarray(x, np.float32)
