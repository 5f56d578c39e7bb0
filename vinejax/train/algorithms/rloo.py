"""RLOO (Ahmadian et al., arXiv 2402.14740): a response is compared with its prompt's others."""

import numpy as np

from vinejax import advantages, policy
from vinejax.train.algorithms.base import PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.trajectories import Trajectories


class RLOO(PolicyGradient):
    """Each token gets its response's reward less the mean of the prompt's other rewards."""

    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        groups = batch.reward.reshape(-1, self.context.setup.config.samples)
        own = [advantages.rloo(group) for group in groups]
        return self.same_for_all_tokens(np.concatenate(own), batch, weights, clock)
