"""GRPO (Shao et al., arXiv 2402.03300): the samples of a prompt are each other's baseline."""

import numpy as np

from vinejax import advantages, policy
from vinejax.train.algorithms.base import PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.trajectories import Trajectories


class GRPO(PolicyGradient):
    """Each token gets (reward - mean) / standard deviation over its prompt's samples.

    Dr. GRPO (Liu et al., arXiv 2503.20783) is `advantages.std=false` with
    `update.divisor=constant`.
    """

    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        config = self.context.setup.config
        groups = batch.reward.reshape(-1, config.samples)
        own = [advantages.grpo(group, std=config.advantages.std) for group in groups]
        return self.same_for_all_tokens(np.concatenate(own), batch, weights, clock)
