"""Supervised fine-tuning alone, the start that all other methods share."""

from vinejax import policy
from vinejax.train.algorithms.base import Algorithm, Metrics, Records
from vinejax.train.clock import Clock
from vinejax.train.trajectories import Trajectories


class Sft(Algorithm):
    """A run without iterations (`folder.iterations`): there is nothing to learn from."""

    def learn(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> tuple[Metrics, Records]:
        """Is never called."""
        raise NotImplementedError("SFT has no iterations")
