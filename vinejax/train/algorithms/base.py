"""What a method is to the training loop, and the two families of methods.

The loop (`train.loop`) owns what methods are compared under: the start, the prompts, sampling,
rewards, validation, checkpoints. For iteration i, counted from 0, it

1. samples and grades trajectories with the current policy, `learner.weights()`,
2. calls `learn(i, ...)`, and writes the rollout records that it returns to `rollouts/`, file i + 1,
3. calls `finish(i, ...)`; the metrics of both calls are one line of metrics.jsonl,
4. validates `learner.state.params` where that is due, and
5. saves `learner.state` and the method's `state` in one checkpoint, where that is due.

A killed run goes on from its newest checkpoint: all iterations behind it are done again, by the
same calls. So a method is exactly resumable if its arrays are in `state`, its randomness follows
from the seed and the iteration (`rng.phase_key`), and nothing else is remembered between calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vinejax import policy
from vinejax.grading import GraderPool
from vinejax.report import Progress
from vinejax.train import exchange, measures, scoring
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.learning import Learner
from vinejax.train.scoring import Scored
from vinejax.train.setup import Setup
from vinejax.train.stopping import StopRequest
from vinejax.train.trajectories import Trajectories

Metrics = dict[str, Any]
Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Context:
    """What a method works with."""

    setup: Setup
    out: Path  # the run folder
    learner: Learner  # the policy's state, and the update that changes it
    reference: policy.DecodeWeights  # the policy that reinforcement learning starts from
    start: Callable[[], policy.Params]  # the same, fp32, read anew at each call
    graders: GraderPool
    progress: Progress
    stop: StopRequest
    profile: int = 0  # iteration of which a profile is written; 0: of none


class Algorithm(ABC):
    """One method: what it makes of an iteration's trajectories.

    `state` is a tree of arrays (JAX or NumPy) that is saved and restored with the policy's. A
    method sets it in `__init__`, which shows the checkpoint its structure, and replaces it when it
    changes; {} is none.
    """

    state: Any

    def __init__(self, context: Context) -> None:
        self.context = context
        self.state = {}

    @abstractmethod
    def learn(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> tuple[Metrics, Records]:
        """Everything that follows sampling; `weights` are those that sampled `batch`.

        Metrics are at least those of `measures.of_sampling`; records go to `rollouts/`.
        """

    def finish(self, iteration: int, clock: Clock) -> Metrics:
        """What follows once the iteration's rollouts are on disk."""
        return {}

    def validates(self, done: int) -> bool:
        """Whether the policy is validated after `done` iterations; after the last it always is."""
        every = self.context.setup.config.evaluation.every
        return every > 0 and done % every == 0

    def score_reference(self, batch: Trajectories, clock: Clock) -> Scored:
        """`score` under the policy that reinforcement learning starts from."""
        with clock("reference"):
            return self.score(self.context.reference, batch)

    def score(self, weights: policy.DecodeWeights, batch: Trajectories) -> Scored:
        """Log-probabilities and entropies of the responses under `weights`, at the temperature."""
        setup, tokens = self.context.setup, batch.tokens
        width = max(len(t) for t in tokens)

        def work(weights: policy.DecodeWeights, part: range, leads: bool) -> Scored:
            return scoring.score(
                weights,
                setup.model,
                tokens[part.start : part.stop],
                setup.config.sampling.temperature,
                width,
                keep_cache=False,
                prompt_lengths=[len(batch.prompts[m]) for m in part],
            )[0]

        return exchange.all_scores(setup.shards.run(work, weights, len(tokens)), width)


class PolicyGradient(Algorithm):
    """Methods that give each token an advantage and make PPO's update with it.

    They differ in `assign`. All else is shared: log-probabilities of the reference, epochs of
    minibatches, clipping, KL term, metrics.
    """

    @abstractmethod
    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        """Advantages, raw, and the log-probabilities of the policy that sampled, `weights`."""

    def after_update(
        self, iteration: int, batch: Trajectories, credit: Credit, clock: Clock
    ) -> Metrics:
        """What else the method trains on the iteration's trajectories; its metrics."""
        return {}

    def same_for_all_tokens(
        self,
        advantages: np.ndarray,
        batch: Trajectories,
        weights: policy.DecodeWeights,
        clock: Clock,
    ) -> Credit:
        """Credit by one number a response, `advantages` [M]: all its steps and tokens get it."""
        with clock("scoring"):
            old = self.score(weights, batch)
        own = np.asarray(advantages, np.float32)
        return Credit(
            step_advantages=[np.full(s.count, a) for s, a in zip(batch.states, own, strict=True)],
            token_advantages=[
                np.full(len(r.tokens), a) for r, a in zip(batch.responses, own, strict=True)
            ],
            old=old,
        )

    def learn(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> tuple[Metrics, Records]:
        """Credit, then all updates of the iteration."""
        context = self.context
        context.progress.phase("values")
        credit = self.assign(iteration, batch, weights, clock)
        context.progress.phase("update")
        reference = credit.reference or self.score_reference(batch, clock)
        with clock("update"):
            learned = context.learner.learn(iteration, batch, credit, reference)
        more = self.after_update(iteration, batch, credit, clock)
        learned |= more | {"skipped": learned["skipped"] + more.get("skipped", 0)}
        metrics = measures.of_iteration(batch, credit, learned, reference.tokens)
        return metrics, measures.rollout_records(batch, credit, context.setup.tokenizer)


class Offline(Algorithm):
    """Methods that sample for a round of iterations and then train on what they kept.

    The policy changes at the end of a round only. What a round trains on is read back from its
    files in `rollouts/`, so a resumed run has it without a buffer in the checkpoint. `train` keeps
    checkpoints of its own below `checkpoints/` in the run folder and goes on from them: a run that
    is killed in it samples again what lies behind its newest checkpoint, to the same rollouts, and
    comes to the same place.
    """

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many there are; divides the configuration's iterations."""

    @property
    def _each(self) -> int:
        """Iterations of a round."""
        return self.context.setup.config.iterations // self.rounds

    def validates(self, done: int) -> bool:
        """At the end of a round: in between the policy is the same."""
        return done % self._each == 0

    @abstractmethod
    def train(self, round: int, iterations: range, clock: Clock) -> Metrics:
        """Trains on the rollouts of round number `round`, counted from 0; replaces the policy.

        `iterations` are the numbers of the round's files, counted from 1 as in `rollouts/`.
        Leaves the new policy in `learner.state`. Raises Preempted, saved, on a stop request.
        """

    def learn(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> tuple[Metrics, Records]:
        """Nothing but what there is to say about the samples."""
        with clock("scoring"):
            old = self.score(weights, batch)
        reference = self.score_reference(batch, clock)
        metrics = measures.of_sampling(batch, old) | measures.of_policy(batch, old, reference)
        records = measures.rollout_records(batch, None, self.context.setup.tokenizer)
        for record, logp in zip(records, reference.logp, strict=True):
            own = slice(record["prompt_length"], len(record["tokens"]))
            record["ref_logp"] = float(logp[own].sum(dtype=np.float64))
        return metrics, records

    def finish(self, iteration: int, clock: Clock) -> Metrics:
        """The training, at the last iteration of a round."""
        each, done = self._each, iteration + 1
        if done % each:
            return {}
        self.context.progress.phase("training")
        return self.train(iteration // each, range(done - each + 1, done + 1), clock)
