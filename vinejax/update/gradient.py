"""The gradient of the policy term by itself, where new and old policy are one.

It is what the first update of an iteration begins with, before whitening, KL term, clipping of the
norm and Adam: at ratio 1 nothing is clipped, and the surrogate's gradient is the policy gradient.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import masked, policy, sharding
from vinejax.update import losses
from vinejax.update.accumulate import count_sequences, gradient_sum, response_mask, token_mask
from vinejax.update.state import shardings
from vinejax.update.step import Hyper


@struct.dataclass
class Weighed:
    """Sequences whose tokens have an advantage; fields as in `update.Batch`."""

    tokens: Int[Array, "B T"]
    length: Int[Array, "B"]
    is_response: Bool[Array, "B T"]
    advantages: Float[Array, "B T"]
    segments: Int[Array, "B T"]
    at: Int[Array, "B N"]


Gradient = Callable[[policy.Params, Weighed], policy.Params]


def make_gradient(hyper: Hyper, mesh: Mesh | None = None) -> Gradient:
    """Jitted: parameters and sequences to the gradient of -sum(advantage x log-probability).

    fp32, like the parameters; divided as `hyper.length_divisor` says. With a mesh, parameters, rows
    and gradient lie as the rule table says.
    """
    placed = None if mesh is None else shardings(hyper, mesh).params

    def gradient(params: policy.Params, batch: Weighed) -> policy.Params:
        where = response_mask(batch.is_response, batch.length)

        def objective(params: policy.Params, rows: tuple[Weighed, jax.Array]) -> tuple:
            part, where = rows
            how = hyper.temperature, part.segments, part.at
            is_token = token_mask(part.tokens, part.length)
            logp, _ = policy.sequence_logprobs(params, hyper.policy, part.tokens, is_token, *how)
            old = jax.lax.stop_gradient(logp)
            return losses.policy_sums(logp, old, part.advantages, where, hyper.clip).loss, ()

        with sharding.within(mesh):
            total, _ = gradient_sum(
                objective, params, (batch, where), hyper.microbatch, mesh, placed
            )
        below = masked.count(where)
        if hyper.length_divisor is not None:
            below = count_sequences(where, batch.segments) * hyper.length_divisor
        return jax.tree.map(lambda g: g / jnp.maximum(below, 1.0), total)

    if mesh is None:
        return jax.jit(gradient)
    return jax.jit(gradient, in_shardings=(placed, sharding.batch(mesh)), out_shardings=placed)
