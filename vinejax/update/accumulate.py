"""Gradients of a sum over a minibatch, a micro-batch at a time.

The objective is a plain sum over rows; the caller divides once by counts of the whole minibatch. So
the micro-batch is a matter of memory alone: any size gives the same loss and gradient.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import masked, sharding
from vinejax.config import ConfigError


def gradient_sum(
    objective: Callable[[Any, Any], tuple[jax.Array, Any]],
    params: Any,
    rows: Any,
    microbatch: int,
    mesh: Mesh | None = None,
    param_shardings: Any = None,
) -> tuple[Any, Any]:
    """(gradient of the summed objective, fp32; the objective's second results, stacked).

    `rows` is a tree of arrays [B, ...]; `objective(params, some rows) -> (sum, statistics)`.
    Statistics come back with a leading axis of micro-batches. Fewer rows than `microbatch` are one.
    Raises ConfigError, while tracing, when `microbatch` does not divide B or data x fsdp devices do
    not divide `microbatch`.
    """
    parts = split(rows, min(microbatch, jax.tree.leaves(rows)[0].shape[0]), mesh)
    count = jax.tree.leaves(parts)[0].shape[0]
    gradient_of = jax.grad(objective, has_aux=True)

    def placed(gradient: Any) -> Any:
        if param_shardings is None:
            return gradient
        return jax.lax.with_sharding_constraint(gradient, param_shardings)

    def body(total: Any, part: Any) -> tuple[Any, Any]:
        gradient, statistics = gradient_of(params, part)
        total = jax.tree.map(lambda a, g: a + g.astype(jnp.float32), total, gradient)
        return placed(total), statistics

    if count == 1:  # no second copy of the gradient
        gradient, statistics = gradient_of(params, jax.tree.map(lambda x: x[0], parts))
        return placed(gradient), jax.tree.map(lambda x: x[None], statistics)
    zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    return jax.lax.scan(body, placed(zeros), parts)


def split(rows: Any, microbatch: int, mesh: Mesh | None = None) -> Any:
    """[B, ...] -> [B / microbatch, microbatch, ...], every count-th row to the same micro-batch.

    Strided, because rows lie on devices in contiguous blocks: each device keeps its own.
    """
    batch = jax.tree.leaves(rows)[0].shape[0]
    if microbatch < 1 or batch % microbatch:
        raise ConfigError(
            f"microbatch is {microbatch}, which does not divide the {batch} rows of the minibatch; "
            f"choose a divisor of {batch}"
        )
    if mesh is not None:
        sharding.check_batch(microbatch, mesh, "microbatch")

    def deal(x: jax.Array) -> jax.Array:
        x = x.reshape(microbatch, batch // microbatch, *x.shape[1:]).swapaxes(0, 1)
        return x if mesh is None else jax.lax.with_sharding_constraint(x, sharding.batch(mesh, 1))

    return jax.tree.map(deal, rows)


def token_mask(tokens: Int[Array, "B T"], length: Int[Array, "B"]) -> Bool[Array, "B T"]:
    """True on the first `length` tokens of each row."""
    return jnp.arange(tokens.shape[1]) < length[:, None]


def response_mask(is_response: Bool[Array, "B T"], length: Int[Array, "B"]) -> Bool[Array, "B T"]:
    """The response tokens that have a log-probability: within `length`, and not the first token."""
    return (is_response & token_mask(is_response, length)).at[:, 0].set(False)


def count_sequences(
    where: Bool[Array, "B T"], segments: Int[Array, "B T"] | None
) -> Float[Array, ""]:
    """Sequences with at least one response token in `where`; those of one row differ in segment."""
    before = jnp.pad(where, ((0, 0), (1, 0)))[:, :-1]
    if segments is not None:
        before &= segments == jnp.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    return masked.count(where & ~before)
