"""PPO's critic: a decoder of its own with one number on top of each position, and its update.

Same state, optimizer, accumulation and shardings as the policy update. Parameters are the policy's
tree without its output head, and {"value": {"w": [D], "b": []}}.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import masked, policy, sharding
from vinejax.update import state as states
from vinejax.update.accumulate import gradient_sum, response_mask, token_mask
from vinejax.update.optimizer import Optimizer
from vinejax.update.state import State, advance
from vinejax.update.step import Sharded, compiled


@dataclass(frozen=True)
class CriticHyper:
    """Static settings of a critic's update."""

    policy: policy.LlamaConfig
    optimizer: Optimizer
    microbatch: int  # rows whose activations are in memory at one time, over all devices
    clip: float = 0.2  # range around the old value


@struct.dataclass
class CriticBatch:
    """A minibatch. Index t of every [B, T] array is about the state before tokens[b, t].

    A row without response tokens has no weight in any sum or count. Sequences that share a row
    differ in `segments`.
    """

    tokens: Int[Array, "B T"]
    length: Int[Array, "B"]  # prompt and response; what is beyond has no effect
    is_response: Bool[Array, "B T"]
    returns: Float[Array, "B T"]
    old_values: Float[Array, "B T"]  # by the critic that starts the iteration
    segments: Int[Array, "B T"] | None = None  # None: one sequence a row


@struct.dataclass
class CriticMetrics:
    """Of one minibatch, fp32 scalars; means are over response tokens."""

    loss: Float[Array, ""]
    clip_fraction: Float[Array, ""]  # tokens on which the clipped value has the larger error
    grad_norm: Float[Array, ""]  # before clipping
    skipped: Float[Array, ""]  # 1 when the update was not made: loss or gradient not finite
    learning_rate: Float[Array, ""]
    tokens: Float[Array, ""]  # response tokens


def init_critic(
    params: policy.Params, hyper: CriticHyper, key: jax.Array, mesh: Mesh | None = None
) -> State:
    """A critic on a copy of the backbone of `params`, with zero moments.

    The weight of the head is normal with standard deviation 1 / sqrt(D + 1), its bias 0 (authors).
    """
    size = hyper.policy.hidden
    weight = jax.random.normal(key, (size,), jnp.float32) / (size + 1) ** 0.5
    head = {"w": weight, "b": jnp.zeros((), jnp.float32)}
    tree = {**_backbone(params), "value": head}
    return states.init(tree, hyper, mesh, critic_axes(hyper.policy))


def critic_axes(config: policy.LlamaConfig) -> policy.Params:
    """The logical axis names of a critic's parameters."""
    return {**_backbone(policy.logical_axes(config)), "value": {"w": ("embed",), "b": ()}}


def token_values(
    params: policy.Params,
    config: policy.LlamaConfig,
    tokens: Int[Array, "B T"],
    length: Int[Array, "B"],
    segments: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T"]:
    """V of the state in which tokens[b, t] is chosen, fp32: it depends on the tokens before t.

    0 at the first token of a row or segment, where nothing is before, and from `length` on.
    """
    is_token = token_mask(tokens, length)
    x = policy.hidden(params, config, tokens, is_token, segments=segments)
    head = params["value"]
    x = x[:, :-1].astype(jnp.float32)
    w = sharding.gather(head["w"], ("embed",))
    values = jnp.einsum("btd,d->bt", x, w, precision="highest") + head["b"]
    follows = is_token[:, 1:]
    if segments is not None:
        follows &= segments[:, 1:] == segments[:, :-1]
    return jnp.pad(jnp.where(follows, values, 0.0), ((0, 0), (1, 0)))


def make_values(
    hyper: CriticHyper, mesh: Mesh | None = None
) -> Callable[[policy.Params, jax.Array, jax.Array], jax.Array]:
    """`token_values` jitted, as a function of (params, tokens, length)."""

    def values(params: policy.Params, tokens: jax.Array, length: jax.Array) -> jax.Array:
        with sharding.within(mesh):
            return token_values(params, hyper.policy, tokens, length)

    if mesh is None:
        return jax.jit(values)
    placed = states.shardings(hyper, mesh, critic_axes(hyper.policy)).params
    rows = sharding.batch(mesh)
    return jax.jit(
        values, in_shardings=(placed, rows, rows), out_shardings=sharding.replicated(mesh)
    )


def make_critic_step(hyper: CriticHyper, mesh: Mesh | None = None) -> Sharded:
    """The jitted update: `step(state, batch) -> (state, CriticMetrics)`, state donated."""
    step = functools.partial(_step, hyper, mesh)
    return compiled(step, hyper, mesh, critic_axes(hyper.policy))


def value_errors(
    values: Float[Array, "B T"],
    old_values: Float[Array, "B T"],
    returns: Float[Array, "B T"],
    is_response: Bool[Array, "B T"],
    clip: float,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum over response tokens of max((v - G)^2, (clip(v, v_old - c, v_old + c) - G)^2) / 2.

    Also on how many of them the clipped error is the larger. Source: vineppo `ppo_trainer.py`.
    """
    values, old_values, returns = (
        masked.keep(x, is_response) for x in (values, old_values, returns)
    )
    near = jnp.clip(values, old_values - clip, old_values + clip)
    plain, clipped = jnp.square(values - returns), jnp.square(near - returns)
    return (
        0.5 * masked.sum(jnp.maximum(plain, clipped), is_response),
        masked.count(is_response & (clipped > plain)),
    )


def _backbone(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: leaf for name, leaf in tree.items() if name != "head"}


def _step(
    hyper: CriticHyper, mesh: Mesh | None, state: State, batch: CriticBatch
) -> tuple[State, CriticMetrics]:
    chex.assert_rank(batch.tokens, 2)
    chex.assert_equal_shape([batch.tokens, batch.is_response, batch.returns, batch.old_values])
    where = response_mask(batch.is_response, batch.length)

    def objective(params: Any, rows: tuple[CriticBatch, jax.Array]) -> tuple[jax.Array, Any]:
        part, where = rows
        values = token_values(params, hyper.policy, part.tokens, part.length, part.segments)
        total, clipped = value_errors(values, part.old_values, part.returns, where, hyper.clip)
        return total, (total, clipped)

    axes = critic_axes(hyper.policy)
    placed = None if mesh is None else states.shardings(hyper, mesh, axes).params
    gradient, statistics = gradient_sum(
        objective, state.params, (batch, where), hyper.microbatch, mesh, placed
    )
    total, clipped = jax.tree.map(lambda x: x.sum(0), statistics)
    tokens = masked.count(where)
    below = jnp.maximum(tokens, 1.0)
    gradient = jax.tree.map(lambda g: g / below, gradient)
    sound = jnp.isfinite(total)
    state, norm, rate, skipped = advance(state, gradient, hyper.optimizer, sound)
    return state, CriticMetrics(
        loss=total / below,
        clip_fraction=clipped / below,
        grad_norm=norm,
        skipped=skipped,
        learning_rate=rate,
        tokens=tokens,
    )
