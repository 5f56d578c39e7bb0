"""The trainer's state, and how it lies on the mesh."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from vinejax import policy, sharding
from vinejax.update import optimizer
from vinejax.update.optimizer import Optimizer


@struct.dataclass
class State:
    """Everything an update changes. Steps donate it: after a step, use the new one only."""

    params: Any  # fp32 master copy, the policy's tree
    opt_state: Any  # optax's, fp32 (the first moment in `Optimizer.first_moment`)
    step: Int[Array, ""]  # updates done


class Trainable(Protocol):
    """What `Hyper` and `SftHyper` have in common."""

    @property
    def policy(self) -> policy.LlamaConfig: ...
    @property
    def optimizer(self) -> Optimizer: ...


def init(params: Any, hyper: Trainable, mesh: Mesh | None = None, axes: Any = None) -> State:
    """A state of its own: zero moments and a fp32 copy of `params` that shares no buffer with it.

    So the caller's tree survives donation and can be the reference policy. With a mesh, the state
    lies as `shardings` says; raises ConfigError when an axis does not divide.
    """

    def fresh(params: Any) -> State:
        master = jax.tree.map(lambda x: jnp.array(x, jnp.float32, copy=True), params)
        moments = optimizer.direction(hyper.optimizer).init(master)
        return State(master, moments, jnp.zeros((), jnp.int32))

    if mesh is None:
        return jax.jit(fresh)(params)
    placed = shardings(hyper, mesh, axes)
    sharding.check_divides(params, placed.params, "params")
    return jax.jit(fresh, out_shardings=placed)(params)


def shardings(hyper: Trainable, mesh: Mesh, axes: Any = None) -> State:
    """A State of shardings: moments lie like the parameters they belong to.

    `axes` are the logical axis names of the parameters, if those are not the policy's.
    """
    params = sharding.shardings(mesh, policy.logical_axes(hyper.policy) if axes is None else axes)
    whole: Any = sharding.replicated(mesh)
    transform = optimizer.direction(hyper.optimizer)
    moments = optax.tree.map_params(
        transform,
        lambda _, placed: placed,
        transform.init(jax.tree.map(lambda _: jnp.zeros(()), params)),
        params,
        transform_non_params=lambda _: whole,
    )
    return State(params, moments, step=whole)


class Advanced(NamedTuple):
    """A state after an optimizer step, and what there is to say about the step."""

    state: State
    norm: Float[Array, ""]  # of the gradient, before clipping
    rate: Float[Array, ""]  # learning rate
    skipped: Float[Array, ""]  # 1 when nothing but the step counter changed


def advance(
    state: State, gradient: Any, settings: Optimizer, sound: Bool[Array, ""] | bool = True
) -> Advanced:
    """One optimizer step, skipped where the gradient's norm is not finite or `sound` is False.

    A skipped step leaves parameters and moments as they are, bit for bit; the step counts.
    """
    rate, norm = optimizer.learning_rate(settings, state.step), optax.tree.norm(gradient)
    sound = jnp.isfinite(norm) & sound
    before = state.params, state.opt_state
    after = optimizer.apply(settings, gradient, state.opt_state, state.params, rate)
    params, opt_state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    skipped = 1 - sound.astype(jnp.float32)
    return Advanced(State(params, opt_state, state.step + 1), norm, rate, skipped)
