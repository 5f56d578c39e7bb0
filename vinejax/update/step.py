"""One update of the policy: whitening, clipped surrogate, KL to the reference, guard, AdamW.

Whitening and the ratio guard are statistics of the minibatch, and the loss is divided by the
minibatch's counts, whatever the micro-batch and the mesh. The authors take all three per
micro-batch and rank; with one micro-batch on one device the two agree.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import masked, policy, sharding
from vinejax.update import losses
from vinejax.update.accumulate import (
    count_sequences,
    gradient_sum,
    response_mask,
    token_mask,
)
from vinejax.update.optimizer import Optimizer
from vinejax.update.state import State, advance, shardings


@dataclass(frozen=True)
class Hyper:
    """Static settings of an update; defaults are the paper's. Hashable: a new one compiles anew."""

    policy: policy.LlamaConfig
    optimizer: Optimizer
    microbatch: int  # rows whose activations are in memory at one time, over all devices
    temperature: float = 0.6  # that of sampling
    clip: float = 0.2
    kl: float = 1e-4
    kl_estimator: losses.KlEstimator = "k3"
    kl_clamp: float = 10.0  # k3, per token
    ratio_guard: float = 10.0  # a minibatch whose mean ratio is above this has loss 0
    whiten: bool = True
    # The policy term is divided by the response tokens, or by the sequences times this (Dr. GRPO).
    length_divisor: int | None = None


@struct.dataclass
class Batch:
    """A minibatch. Index t of every [B, T] array means tokens[b, t].

    A row without response tokens (filling up a batch) has no weight in any sum, count or statistic.
    Several sequences can share a row, one behind the other; then `segments` tells them apart. A
    response is one stretch of tokens.
    """

    tokens: Int[Array, "B T"]
    length: Int[Array, "B"]  # all tokens of a row; what is beyond has no effect
    is_response: Bool[Array, "B T"]
    advantages: Float[Array, "B T"]  # raw
    old_logp: Float[Array, "B T"]  # by the policy that starts the iteration, at `temperature`
    ref_logp: Float[Array, "B T"]  # by the reference policy, at `temperature`
    segments: Int[Array, "B T"] | None = None  # None: one sequence a row
    # Indices of all response tokens, filled up with 0: the head works on these alone. None: on all.
    at: Int[Array, "B N"] | None = None


@struct.dataclass
class Metrics:
    """Of one minibatch, fp32 scalars. Means are over response tokens unless it says otherwise."""

    loss: Float[Array, ""]  # policy_loss + kl_loss, 0 when guarded
    policy_loss: Float[Array, ""]
    kl_loss: Float[Array, ""]  # coefficient x sum over tokens, mean over sequences
    kl_k1: Float[Array, ""]  # to the reference, nats a token
    kl_k3: Float[Array, ""]
    approx_kl: Float[Array, ""]  # k3 of old against new
    ratio: Float[Array, ""]
    ratio_max: Float[Array, ""]
    clip_fraction: Float[Array, ""]
    guarded: Float[Array, ""]  # 1 when the ratio guard zeroed the loss
    entropy: Float[Array, ""]
    advantage: Float[Array, ""]  # raw
    advantage_std: Float[Array, ""]
    grad_norm: Float[Array, ""]  # before clipping
    skipped: Float[Array, ""]  # 1 when the update was not made: loss or gradient not finite
    learning_rate: Float[Array, ""]
    tokens: Float[Array, ""]  # response tokens
    sequences: Float[Array, ""]


class Sharded(NamedTuple):
    """A jitted step (state donated) and where its arguments lie (None without a mesh)."""

    step: Callable[[State, Any], tuple[State, Any]]
    state_sharding: Any
    batch_sharding: Any


def make_step(hyper: Hyper, mesh: Mesh | None = None) -> Sharded:
    """The jitted update; with a mesh, parameters and rows lie as the rule table says."""
    return compiled(functools.partial(_step, hyper, mesh), hyper, mesh)


def step(state: State, batch: Batch, hyper: Hyper) -> tuple[State, Metrics]:
    """One update on one device. `state` is donated; compiled once for each `hyper` and shape."""
    return _make_step(hyper).step(state, batch)


def compiled(function: Callable, hyper: Any, mesh: Mesh | None, axes: Any = None) -> Sharded:
    """`function(state, batch) -> (state, metrics)` jitted, donating the state; for all updates.

    `axes` as in `update.shardings`.
    """
    if mesh is None:
        return Sharded(jax.jit(function, donate_argnums=0), None, None)
    placed, rows = shardings(hyper, mesh, axes), sharding.batch(mesh)

    def on_mesh(state: State, batch: Any) -> tuple[State, Any]:
        with sharding.within(mesh):
            return function(state, batch)

    jitted = jax.jit(
        on_mesh,
        donate_argnums=0,
        in_shardings=(placed, rows),
        out_shardings=(placed, sharding.replicated(mesh)),
    )
    return Sharded(jitted, placed, rows)


@functools.lru_cache(maxsize=8)
def _make_step(hyper: Hyper) -> Sharded:
    return make_step(hyper)


def _step(hyper: Hyper, mesh: Mesh | None, state: State, batch: Batch) -> tuple[State, Metrics]:
    chex.assert_rank(batch.tokens, 2)
    per_token = [batch.is_response, batch.advantages, batch.old_logp, batch.ref_logp]
    chex.assert_equal_shape([batch.tokens, *per_token])
    where = response_mask(batch.is_response, batch.length)
    advantages = masked.whiten(batch.advantages, where) if hyper.whiten else batch.advantages
    tokens = jnp.maximum(masked.count(where), 1.0)
    found = count_sequences(where, batch.segments)
    sequences = jnp.maximum(found, 1.0)
    below = tokens if hyper.length_divisor is None else sequences * hyper.length_divisor

    def objective(params: Any, rows: tuple[Batch, jax.Array]) -> tuple[jax.Array, Any]:
        part, where = rows
        is_token = token_mask(part.tokens, part.length)
        how = hyper.temperature, part.segments, part.at
        logp, entropy = policy.sequence_logprobs(params, hyper.policy, part.tokens, is_token, *how)
        gain = losses.policy_sums(logp, part.old_logp, part.advantages, where, hyper.clip)
        drift = losses.kl_sums(logp, part.ref_logp, where, hyper.kl_estimator, hyper.kl_clamp)
        # In units of the divisor, so that one division at the end serves both terms.
        total = gain.loss + hyper.kl * below / sequences * drift.loss
        return total, (gain, drift, masked.sum(jax.lax.stop_gradient(entropy), where))

    placed = None if mesh is None else shardings(hyper, mesh).params
    rows = (replace(batch, advantages=advantages), where)
    gradient, statistics = gradient_sum(
        objective, state.params, rows, hyper.microbatch, mesh, placed
    )
    gain, drift, entropy = jax.tree.map(lambda x: x.sum(0), statistics)
    # A mean ratio that is not a number is above every threshold.
    guarded = ~(gain.ratio / tokens <= hyper.ratio_guard)
    gradient = jax.tree.map(lambda g: jnp.where(guarded, 0.0, g / below), gradient)
    policy_loss = jnp.where(guarded, 0.0, gain.loss / below)
    kl_loss = jnp.where(guarded, 0.0, hyper.kl * drift.loss / sequences)
    sound = jnp.isfinite(gain.ratio) & jnp.isfinite(policy_loss + kl_loss)
    state, norm, rate, skipped = advance(state, gradient, hyper.optimizer, sound)
    return state, Metrics(
        loss=policy_loss + kl_loss,
        policy_loss=policy_loss,
        kl_loss=kl_loss,
        kl_k1=drift.k1 / tokens,
        kl_k3=drift.k3 / tokens,
        approx_kl=gain.approx_kl / tokens,
        ratio=gain.ratio / tokens,
        ratio_max=statistics[0].ratio_max.max(),
        clip_fraction=gain.clipped / tokens,
        guarded=guarded.astype(jnp.float32),
        entropy=entropy / tokens,
        advantage=masked.mean(batch.advantages, where),
        advantage_std=jnp.sqrt(masked.var(batch.advantages, where)),
        grad_norm=norm,
        skipped=skipped,
        learning_rate=rate,
        tokens=gain.tokens,
        sequences=found,
    )
