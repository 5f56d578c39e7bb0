"""AdamW behind a global-norm clip, and learning rates counted in optimizer steps.

The rate of update number t (0 is the first) depends on t alone, so where a run was resumed or how
many micro-batches an update had doesn't matter.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


@dataclass(frozen=True)
class Optimizer:
    """Settings of AdamW and its learning rate; hashable, static under jit.

    `total_steps` and `warmup_steps` count updates. `weight_decay` is decoupled and acts on every
    parameter. Constants: VinePPO's (DeepSpeed AdamW).
    """

    learning_rate: float
    total_steps: int
    warmup_steps: int = 0
    warmup: Literal["logarithmic", "linear"] = "logarithmic"
    decay: Literal["linear", "constant", "cosine"] = "linear"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    first_moment: Literal["float32", "bfloat16"] = "float32"


COSINE_FLOOR = 0.1  # the share of the peak that a cosine decay ends at


def warmup_steps(ratio: float, total_steps: int) -> int:
    """ratio x total_steps, rounded up (0.03 of 16,000 is 480)."""
    return math.ceil(round(ratio * total_steps, 6))


def learning_rate(settings: Optimizer, step: Int[Array, ""] | int) -> Float[Array, ""]:
    """The rate of update number `step`, counted from 0.

    Warm-up over W updates: peak ln(t + 1) / ln(W) with W at least 2 (DeepSpeed's shape, rate 0 at
    first) or peak t / W. Then linear to 0 or cosine to peak / 10 at `total_steps`, or constant.
    DeepSpeed lags one update behind: its first update has a rate that depends on its version.
    """
    t = jnp.asarray(step, jnp.float32)
    w, total = settings.warmup_steps, settings.total_steps
    if settings.warmup == "logarithmic":
        w = max(w, 2) if w else 0
        rising = jnp.log1p(t) / math.log(max(w, 2))
    else:
        rising = t / max(w, 1)
    left = jnp.clip((total - t) / max(total - w, 1), 0.0, 1.0)
    falling = {
        "linear": left,
        "constant": jnp.ones_like(left),
        "cosine": COSINE_FLOOR + (1 - COSINE_FLOOR) * 0.5 * (1 + jnp.cos(jnp.pi * (1 - left))),
    }[settings.decay]
    return settings.learning_rate * jnp.where(t < w, rising, falling)


def direction(settings: Optimizer) -> optax.GradientTransformation:
    """From a gradient to the step at rate 1: clip by global norm, Adam, decoupled weight decay."""
    parts = [
        optax.clip_by_global_norm(settings.max_grad_norm),
        optax.scale_by_adam(
            settings.b1, settings.b2, settings.eps, mu_dtype=jnp.dtype(settings.first_moment)
        ),
    ]
    if settings.weight_decay:
        parts.append(optax.add_decayed_weights(settings.weight_decay))
    return optax.chain(*parts)


def apply(
    settings: Optimizer, gradient: Any, opt_state: Any, params: Any, rate: Float[Array, ""]
) -> tuple[Any, Any]:
    """Parameters and optimizer state after one update at `rate`, in fp32."""
    update, opt_state = direction(settings).update(gradient, opt_state, params)
    return jax.tree.map(lambda p, u: p - rate * u, params, update), opt_state
