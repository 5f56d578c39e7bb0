"""What may say how much a state is worth: rollouts, PPO's critic, the other samples of a prompt.

The true value of a state is the mean of many rollouts. Rollouts that predict come from a key of
their own, so that no sample is in both (the authors' ranking reused those of the truth).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from vinejax import policy, rng, sharding, update
from vinejax.checkpoint import Checkpoints
from vinejax.grading import GraderPool
from vinejax.train import batches, truth
from vinejax.train.algorithms import ppo
from vinejax.train.learning import decode_weights
from vinejax.train.setup import Setup
from vinejax.train.truth import Prefix

PAPER_K = (1, 3, 9)  # of the paper's ablation
# Phases that name the keys; two for each analysis.
TRUTH, ESTIMATES = "analysis-truth", "analysis-estimates"


@dataclass(frozen=True)
class Policy:
    """The policy of one checkpoint, and what is needed to ask about it."""

    setup: Setup
    iteration: int  # 0: the start of reinforcement learning
    weights: policy.DecodeWeights
    graders: GraderPool
    critic: "Critic | None"

    @staticmethod
    def of(
        setup: Setup,
        iteration: int,
        params: policy.Params,
        graders: GraderPool,
        critic: "Critic | None" = None,
    ) -> "Policy":
        """With a copy of `params` to sample with."""
        return Policy(setup, iteration, decode_weights(setup, params), graders, critic)

    def key(self, phase: str) -> jax.Array:
        """The key of a phase of this checkpoint's analysis."""
        return rng.phase_key(self.setup.config.seed, self.iteration, phase)

    def returns(self, states: Sequence[Prefix], rollouts: int, phase: str) -> np.ndarray:
        """Rewards of fresh continuations, fp64 [states, rollouts]."""
        if not states:
            return np.zeros((0, rollouts))
        key = self.key(phase)
        return truth.returns(self.setup, self.weights, self.graders, states, rollouts, key)


class Critic:
    """PPO's critic as it was at a checkpoint."""

    def __init__(self, setup: Setup, params: policy.Params) -> None:
        settings = ppo.hyper(setup.config, setup.model)
        mesh = None if setup.mesh.size == 1 else setup.mesh
        self._size = setup.config.update.microbatch
        self._values = update.make_values(settings, mesh)
        self._placement = None if mesh is None else sharding.batch(mesh)
        self._params = params

    @staticmethod
    def load(
        setup: Setup, start: policy.Params, saved: Checkpoints | None, iteration: int
    ) -> "Critic":
        """That of an iteration's checkpoint; without checkpoints the one before any update.

        `start` are the parameters that reinforcement learning began with.
        """
        state = ppo.first_critic(setup, start)
        if saved is not None:
            tree, _ = saved.restore(iteration, {"algorithm": state}, partial=True)
            state = tree["algorithm"]
        return Critic(setup, state.params)

    def __call__(self, states: Sequence[Prefix]) -> np.ndarray:
        """Its values, fp64 [states]: those before the token that comes next."""
        # Of the token that comes next nothing is seen, but there must be one.
        rows = batches.padded(
            [np.append(s.tokens, np.int32(0)) for s in states], [s.prompt_length for s in states]
        )
        last = rows["length"] - 1
        return self.of_tokens(rows)[np.arange(len(states)), last].astype(np.float64)

    def of_tokens(self, rows: dict[str, np.ndarray]) -> np.ndarray:
        """Its values of all tokens, fp32 [N, T]: those before each; `rows` as `batches.padded`."""
        count, found = len(rows["length"]), []
        for start in range(0, count, self._size):
            at = np.arange(start, start + self._size) % count  # one shape for all parts
            part = [jnp.asarray(rows[name][at]) for name in ("tokens", "length")]
            if self._placement is not None:
                part = sharding.place(part, self._placement)
            found.append(np.asarray(self._values(self._params, *part)))
        return np.concatenate(found)[:count]


def by_rollouts(rewards: np.ndarray, own_k: int) -> dict[str, np.ndarray]:
    """Estimates "mc_K" for the paper's K and the configuration's, from the first K columns.

    Rollouts of a smaller K are among those of a larger one: the comparison of two K is paired.
    """
    return {f"mc_{k}": rewards[:, :k].mean(axis=1) for k in counts(own_k)}


def counts(own_k: int) -> list[int]:
    """The K that are looked at, ascending."""
    return sorted({*PAPER_K, own_k})
