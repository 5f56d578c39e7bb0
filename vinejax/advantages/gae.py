"""Generalised advantage estimation (Schulman et al., 2016), over masked tokens."""

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    rewards: Float[Array, "... T"],
    values: Float[Array, "... T"],
    gamma: float,
    lam: float,
    where: Bool[Array, "... T"],
) -> Float[Array, "... T"]:
    """Sum over l of (gamma lam)^l delta_{t+l}, delta_t = r_t + gamma V(s_{t+1}) - V(s_t).

    values[t] is V of the state in which token t is chosen; the state after the last kept token is
    worth 0. Entries that `where` does not keep get 0 and are stepped over: neither their value nor
    their reward reaches a kept one. With gamma = lam = 1 and the reward R on the last token this is
    R - V(s_t).
    """
    where = jnp.asarray(where)
    chex.assert_equal_shape([jnp.asarray(rewards), jnp.asarray(values), where])
    rewards = jnp.where(where, jnp.asarray(rewards, jnp.float32), 0.0)
    values = jnp.where(where, jnp.asarray(values, jnp.float32), 0.0)

    def back(after, now):
        advantage_after, value_after = after
        reward, value, kept = now
        advantage = reward + gamma * value_after - value + gamma * lam * advantage_after
        carry = (jnp.where(kept, advantage, advantage_after), jnp.where(kept, value, value_after))
        return carry, jnp.where(kept, advantage, 0.0)

    nothing = jnp.zeros(rewards.shape[:-1], jnp.float32)
    time_first = [jnp.moveaxis(x, -1, 0) for x in (rewards, values, where)]
    _, advantages = jax.lax.scan(back, (nothing, nothing), tuple(time_first), reverse=True)
    return jnp.moveaxis(advantages, 0, -1)
