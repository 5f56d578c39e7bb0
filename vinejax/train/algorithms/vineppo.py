"""VinePPO (Kazemnejad et al., arXiv 2410.01679): the values of intermediate states are measured."""

from vinejax import policy
from vinejax.train import credit
from vinejax.train.algorithms.base import PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.trajectories import Trajectories


class VinePPO(PolicyGradient):
    """A step's advantage is the difference of two values, each the mean reward of K rollouts."""

    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        """See `train.credit`: it also scores, since the vines grow from the scorer's KV."""
        context = self.context
        return credit.assign(
            context.setup,
            weights,
            context.graders,
            iteration,
            batch,
            clock,
            meanwhile=lambda: self.score_reference(batch, clock),
        )
