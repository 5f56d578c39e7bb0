"""A method of your own: REINFORCE with a running mean of the rewards as its baseline.

PYTHONPATH=. python -m experiments.run --config=tiny --config.algorithm=examples.reinforce:Reinforce
"""

import numpy as np

from vinejax import policy
from vinejax.train.algorithms.base import Context, PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.trajectories import Trajectories

MEMORY = 0.9  # how much of the baseline an iteration keeps


class Reinforce(PolicyGradient):
    """All tokens of a response get its reward less the mean reward of earlier iterations."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        # What is here is saved with each checkpoint, and restored when the run goes on.
        self.state = {"baseline": np.zeros(1, np.float32)}

    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        baseline = self.state["baseline"]
        self.state = {"baseline": MEMORY * baseline + (1 - MEMORY) * batch.reward.mean()}
        return self.same_for_all_tokens(batch.reward - baseline, batch, weights, clock)
