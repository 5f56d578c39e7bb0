"""The paper's loss, as sums and counts: `update.step` divides once, at the end of a minibatch.

Arrays are [B, T] and index t names the token that was produced. Masks are applied before `exp`, so
whatever stands in a masked slot reaches neither value nor gradient.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from vinejax import masked

KlEstimator = Literal["k1", "k2", "k3"]

# exp() overflows float32 above 88. Every clamp of k3 below e^30 has cut in long before this.
LARGEST_EXPONENT = 30.0


@struct.dataclass
class PolicySums:
    """Sums over response tokens, fp32; `ratio_max` is the maximum."""

    loss: Float[Array, ""]
    tokens: Float[Array, ""]
    ratio: Float[Array, ""]
    ratio_max: Float[Array, ""]
    clipped: Float[Array, ""]  # tokens on which the clipped branch is the larger loss
    approx_kl: Float[Array, ""]  # k3 of old against new, nats


@struct.dataclass
class KlSums:
    """Sums of KL(new || reference) estimates over response tokens, nats, fp32."""

    loss: Float[Array, ""]  # the estimator in the loss, clamped; summed over tokens and sequences
    k1: Float[Array, ""]
    k3: Float[Array, ""]  # not clamped


def policy_sums(
    logp: Float[Array, "B T"],
    old_logp: Float[Array, "B T"],
    advantages: Float[Array, "B T"],
    is_response: Bool[Array, "B T"],
    clip: float,
) -> PolicySums:
    """PPO's clipped surrogate: max(-a r, -a clip(r, 1 - clip, 1 + clip)) with r = exp(new - old).

    The gradient flows through `logp` alone. Source: vineppo `ppo_trainer.py`, a token mean.
    """
    log_ratio = masked.keep(logp, is_response) - masked.keep(old_logp, is_response)
    ratio = jnp.exp(log_ratio)
    a = masked.keep(advantages, is_response)
    plain = -a * ratio
    clipped = -a * jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    frozen = jax.lax.stop_gradient
    return PolicySums(
        loss=masked.sum(jnp.maximum(plain, clipped), is_response),
        tokens=masked.count(is_response),
        ratio=masked.sum(frozen(ratio), is_response),
        ratio_max=jnp.max(masked.keep(frozen(ratio), is_response)),
        clipped=masked.count(is_response & (clipped > plain)),
        approx_kl=masked.sum(frozen(ratio - 1.0 - log_ratio), is_response),
    )


def kl_sums(
    logp: Float[Array, "B T"],
    ref_logp: Float[Array, "B T"],
    is_response: Bool[Array, "B T"],
    estimator: KlEstimator = "k3",
    clamp: float = 10.0,
) -> KlSums:
    """Sums of an estimate of KL(new || reference) from the sampled tokens, d = ref - new.

    k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1, the last clamped to [0, clamp] on each token.
    As a loss, over samples of the new policy, k1 has an expected gradient of 0, k2 that of
    KL(new || ref) and k3 that of KL(ref || new). Source: Schulman, "Approximating KL divergence".
    """
    d = masked.keep(ref_logp, is_response) - masked.keep(logp, is_response)
    k3 = jnp.expm1(jnp.minimum(d, LARGEST_EXPONENT)) - d
    terms = {"k1": -d, "k2": 0.5 * jnp.square(d), "k3": jnp.clip(k3, 0.0, clamp)}
    frozen = jax.lax.stop_gradient
    return KlSums(
        loss=masked.sum(terms[estimator], is_response),
        k1=masked.sum(frozen(-d), is_response),
        k3=masked.sum(frozen(k3), is_response),
    )


def example_means(
    logp: Float[Array, "B T"], is_response: Bool[Array, "B T"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """SFT: each example's mean of -logp over its response tokens, summed; and how many examples.

    An example without response tokens adds nothing to either. Source: vineppo `mle_trainer.py`.
    """
    return (
        masked.mean(-logp, is_response, axis=-1).sum(),
        masked.count(is_response.any(-1)),
    )
