"""DPO-Positive: one update on pairs of an accepted and a rejected response to the same problem.

Same state, optimizer, accumulation and shardings as the policy update. A pair's two responses lie
side by side, so both go through the model in one pass on the device that holds the pair.
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
from vinejax.update.accumulate import gradient_sum, response_mask, token_mask
from vinejax.update.optimizer import Optimizer
from vinejax.update.state import State, advance, shardings
from vinejax.update.step import Sharded, compiled

CHOSEN, REJECTED = 0, 1  # along the second axis of a batch


@dataclass(frozen=True)
class DpoHyper:
    """Static settings of an update on pairs; defaults are the authors' for MATH."""

    policy: policy.LlamaConfig
    optimizer: Optimizer
    microbatch: int  # pairs whose activations are in memory at one time, over all devices
    beta: float = 0.1
    penalty: float = 50.0  # lambda: weight of a chosen response's loss against the reference
    label_smoothing: float = 0.0  # assumed share of pairs that are the wrong way round
    temperature: float = 0.6  # that of sampling


@struct.dataclass
class PairBatch:
    """Pairs: index 0 of the second axis is chosen, index 1 rejected.

    A pair without response tokens (filling up a batch) has no weight.
    """

    tokens: Int[Array, "B 2 T"]
    length: Int[Array, "B 2"]  # prompt and response; what is beyond has no effect
    is_response: Bool[Array, "B 2 T"]
    ref_logp: Float[Array, "B 2"]  # of whole responses by the reference policy, at `temperature`


@struct.dataclass
class PairTerms:
    """Of each pair, fp32."""

    loss: Float[Array, " B"]
    margin: Float[Array, " B"]  # chosen reward - rejected reward, where reward = beta (pi - ref)
    penalised: Bool[Array, " B"]  # the chosen response is less likely than under the reference


@struct.dataclass
class DpoMetrics:
    """Of one batch, fp32 scalars; means over pairs."""

    loss: Float[Array, ""]  # nats
    margin: Float[Array, ""]
    accuracy: Float[Array, ""]  # share of the pairs with a margin above 0
    penalised: Float[Array, ""]  # share of the pairs whose penalty is active
    chosen_logp: Float[Array, ""]  # of a whole response, nats
    rejected_logp: Float[Array, ""]
    grad_norm: Float[Array, ""]  # before clipping
    skipped: Float[Array, ""]  # 1 when the update was not made: loss or gradient not finite
    learning_rate: Float[Array, ""]
    tokens: Float[Array, ""]  # response tokens of both sides
    pairs: Float[Array, ""]


def pair_terms(
    logp: Float[Array, "B 2"],
    ref_logp: Float[Array, "B 2"],
    beta: float,
    penalty: float,
    label_smoothing: float = 0.0,
) -> PairTerms:
    """-(1 - s) log sigmoid(z) - s log sigmoid(-z) with
    z = beta [(pi_w - pi_l) - (ref_w - ref_l) - penalty max(0, ref_w - pi_w)].

    pi and ref are log-probabilities of whole responses (sums, nats); w is chosen, l rejected, s the
    label smoothing. Where pi_w = ref_w the penalty has gradient 0. Source: Pal et al. 2024, "Smaug"
    (arXiv 2402.13228), with the VinePPO authors' settings.
    """
    gain = logp - ref_logp
    chosen, rejected = gain[:, CHOSEN], gain[:, REJECTED]
    z = beta * (chosen - rejected - penalty * jax.nn.relu(-chosen))
    loss = -(1 - label_smoothing) * jax.nn.log_sigmoid(z)
    if label_smoothing:
        loss = loss - label_smoothing * jax.nn.log_sigmoid(-z)
    return PairTerms(loss, beta * (chosen - rejected), chosen < 0)


def make_dpo_step(hyper: DpoHyper, mesh: Mesh | None = None) -> Sharded:
    """The jitted update: `step(state, batch) -> (state, DpoMetrics)`, state donated."""
    return compiled(functools.partial(_step, hyper, mesh), hyper, mesh)


def _step(
    hyper: DpoHyper, mesh: Mesh | None, state: State, batch: PairBatch
) -> tuple[State, DpoMetrics]:
    chex.assert_rank(batch.tokens, 3)
    chex.assert_equal_shape([batch.tokens, batch.is_response])

    def objective(params: Any, part: PairBatch) -> tuple[jax.Array, dict[str, jax.Array]]:
        logp, tokens = _response_logp(params, hyper, part)
        is_pair = tokens.any(-1)
        ref_logp = masked.keep(part.ref_logp, is_pair[:, None])
        terms = pair_terms(logp, ref_logp, hyper.beta, hyper.penalty, hyper.label_smoothing)
        loss = masked.sum(terms.loss, is_pair)
        return loss, {
            "loss": loss,
            "margin": masked.sum(terms.margin, is_pair),
            "accuracy": masked.count(is_pair & (terms.margin > 0)),
            "penalised": masked.count(is_pair & terms.penalised),
            "chosen_logp": masked.sum(logp[:, CHOSEN], is_pair),
            "rejected_logp": masked.sum(logp[:, REJECTED], is_pair),
            "tokens": tokens.sum(),
            "pairs": masked.count(is_pair),
        }

    placed = None if mesh is None else shardings(hyper, mesh).params
    gradient, statistics = gradient_sum(
        objective, state.params, batch, hyper.microbatch, mesh, placed
    )
    sums = jax.tree.map(lambda x: x.sum(0), statistics)
    tokens, pairs = sums.pop("tokens"), sums.pop("pairs")
    below = jnp.maximum(pairs, 1.0)
    gradient = jax.tree.map(lambda g: g / below, gradient)
    sound = jnp.isfinite(sums["loss"])
    state, norm, rate, skipped = advance(state, gradient, hyper.optimizer, sound)
    means = {name: total / below for name, total in sums.items()}
    return state, DpoMetrics(
        **means,
        grad_norm=norm,
        skipped=skipped,
        learning_rate=rate,
        tokens=tokens,
        pairs=pairs,
    )


def _response_logp(
    params: policy.Params, hyper: DpoHyper, pairs: PairBatch
) -> tuple[Float[Array, "B 2"], Float[Array, "B 2"]]:
    """Log-probability of each whole response, nats, and its number of tokens."""
    tokens, length, is_response = (
        x.reshape(-1, *x.shape[2:]) for x in (pairs.tokens, pairs.length, pairs.is_response)
    )
    where = response_mask(is_response, length)
    logp, _ = policy.sequence_logprobs(
        params,
        hyper.policy,
        tokens,
        token_mask(tokens, length),
        hyper.temperature,
    )
    return masked.sum(logp, where, axis=-1).reshape(-1, 2), masked.count(where, -1).reshape(-1, 2)
