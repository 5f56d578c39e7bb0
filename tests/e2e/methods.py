"""A method of the offline family that needs no training: the policy shrinks with the rewards."""

from typing import Any

import jax
import numpy as np

from vinejax.report import read_rollouts
from vinejax.train.algorithms.base import Offline
from vinejax.train.clock import Clock


class Shrink(Offline):
    """Two rounds; each multiplies the policy's parameters by a number near 1."""

    rounds = 2

    def train(self, round: int, iterations: range, clock: Clock) -> dict[str, Any]:
        context = self.context
        rewards = [r["reward"] for i in iterations for r in read_rollouts(context.out, i)]
        factor = 1 - 0.01 * np.float32(np.mean(rewards))
        state = context.learner.state
        params = jax.tree.map(lambda x: x * factor, state.params)
        context.learner.state = state.replace(params=params, step=state.step + 1)
        return {"round": round, "files": len(iterations), "kept": len(rewards)}
