"""Supervised fine-tuning: the mean over each example's response tokens, then over examples.

Same state, optimizer, accumulation and shardings as the policy update.
"""

import functools
from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import masked, policy
from vinejax.update import losses
from vinejax.update.accumulate import gradient_sum, response_mask, token_mask
from vinejax.update.optimizer import Optimizer
from vinejax.update.state import State, advance, shardings
from vinejax.update.step import Sharded, compiled


@dataclass(frozen=True)
class SftHyper:
    """Static settings of a supervised update."""

    policy: policy.LlamaConfig
    optimizer: Optimizer
    microbatch: int
    temperature: float = 1.0  # divides the logits; that of sampling when own responses are imitated


@struct.dataclass
class SftBatch:
    """Demonstrations. A row without response tokens has no weight."""

    tokens: Int[Array, "B T"]
    length: Int[Array, "B"]
    is_response: Bool[Array, "B T"]


@struct.dataclass
class SftMetrics:
    """Of one batch, fp32 scalars."""

    loss: Float[Array, ""]  # nats, mean over examples of means over tokens
    entropy: Float[Array, ""]  # mean over response tokens
    grad_norm: Float[Array, ""]  # before clipping
    skipped: Float[Array, ""]  # 1 when the update was not made: loss or gradient not finite
    learning_rate: Float[Array, ""]
    tokens: Float[Array, ""]  # response tokens
    examples: Float[Array, ""]


def make_sft_step(hyper: SftHyper, mesh: Mesh | None = None) -> Sharded:
    """The jitted supervised update: `step(state, batch) -> (state, SftMetrics)`, state donated."""
    return compiled(functools.partial(_step, hyper, mesh), hyper, mesh)


def _step(
    hyper: SftHyper, mesh: Mesh | None, state: State, batch: SftBatch
) -> tuple[State, SftMetrics]:
    chex.assert_rank(batch.tokens, 2)
    chex.assert_equal_shape([batch.tokens, batch.is_response])
    where = response_mask(batch.is_response, batch.length)

    def objective(params: Any, rows: tuple[SftBatch, jax.Array]) -> tuple[jax.Array, Any]:
        part, where = rows
        logp, entropy = policy.sequence_logprobs(
            params,
            hyper.policy,
            part.tokens,
            token_mask(part.tokens, part.length),
            hyper.temperature,
        )
        total, examples = losses.example_means(logp, where)
        entropy = masked.sum(jax.lax.stop_gradient(entropy), where)
        return total, (total, examples, entropy)

    placed = None if mesh is None else shardings(hyper, mesh).params
    gradient, statistics = gradient_sum(
        objective, state.params, (batch, where), hyper.microbatch, mesh, placed
    )
    total, examples, entropy = jax.tree.map(lambda x: x.sum(0), statistics)
    below = jnp.maximum(examples, 1.0)
    gradient = jax.tree.map(lambda g: g / below, gradient)
    sound = jnp.isfinite(total)
    state, norm, rate, skipped = advance(state, gradient, hyper.optimizer, sound)
    tokens = masked.count(where)
    return state, SftMetrics(
        loss=total / below,
        entropy=entropy / jnp.maximum(tokens, 1.0),
        grad_norm=norm,
        skipped=skipped,
        learning_rate=rate,
        tokens=tokens,
        examples=examples,
    )
