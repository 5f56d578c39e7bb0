"""VinePPO's outer loop: the one place where the stages of an iteration meet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from vinejax import policy
from vinejax.checkpoint import Checkpoints
from vinejax.config import Preempted
from vinejax.grading import GraderPool
from vinejax.journal import Journal
from vinejax.report import MetricsLog, Progress, RolloutLog
from vinejax.train import credit, folder, measures, scoring, trajectories
from vinejax.train.clock import Clock, CompileCounter
from vinejax.train.evaluation import evaluate, named
from vinejax.train.learning import Learner
from vinejax.train.setup import Setup
from vinejax.train.stopping import StopRequest

TEXTS_KEPT = 8  # trajectories of an iteration whose texts are written out


@dataclass(frozen=True)
class Best:
    """The iteration with the highest validation accuracy; among equal ones the first."""

    iteration: int
    pass_at_1: float


@dataclass
class Totals:
    """Tokens over the whole run; kept in the checkpoints."""

    sampled: int = 0
    trained: int = 0


def newest_iteration(out: Path) -> int:
    """The iteration that a run in `out` would go on from."""
    path = out / "checkpoints" / "policy"
    if not path.is_dir():
        return 0
    with Checkpoints(path, read_only=True) as checkpoints:
        return checkpoints.latest() or 0


class Reinforcement:
    """The state of a run after SFT, and how it goes on by one iteration."""

    def __init__(
        self,
        setup: Setup,
        out: Path,
        start: policy.Params,
        reference: policy.DecodeWeights,
        graders: GraderPool,
        journal: Journal,
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        self.setup, self.reference = setup, reference
        self.learner = Learner(setup, start)
        self.iteration, self.best, self.totals = 0, Best(0, -1.0), Totals()
        self._graders, self._journal, self._progress = graders, journal, progress
        self._stop = stop
        checkpoint = setup.config.checkpoint
        self._checkpoints = Checkpoints(
            out / "checkpoints" / "policy", checkpoint.keep, checkpoint.keep_period or None
        )
        self._bests = Checkpoints(out / "checkpoints" / "best", keep=2)
        self._restore()
        self._metrics = MetricsLog(out, self.iteration)
        self._rollouts = RolloutLog(out)
        self._rollouts.delete_after(self.iteration)
        self._compiles = CompileCounter()

    def __enter__(self) -> "Reinforcement":
        return self

    def __exit__(self, *_: object) -> None:
        for resource in (self._compiles, self._metrics, self._checkpoints, self._bests):
            resource.close()

    def _restore(self) -> None:
        restored = self._checkpoints.restore_latest(self.learner.state)
        if restored is not None:
            self.iteration, self.learner.state, meta = restored
            self.best = Best(**meta["best"])
            self.totals = Totals(**meta["totals"])
        for checkpoints in (self._checkpoints, self._bests):
            checkpoints.delete_after(self.iteration)

    def run(self) -> None:
        """All iterations that are left, with validation and checkpoints on the way."""
        total = folder.iterations(self.setup.config)
        if self.iteration == 0:
            self._validate(0, Clock())
        while self.iteration < total:
            self._iterate(total)
        self._checkpoints.wait()
        self._bests.wait()

    def _iterate(self, total: int) -> None:
        clock, compiled = Clock(), self._compiles.count
        iteration = self.iteration
        with clock("iteration"):
            metrics = self._learn(iteration, clock)
            self.iteration = done = iteration + 1
            every = self.setup.config.evaluation.every
            if done == total or (every and done % every == 0):
                metrics |= self._validate(done, clock)
        metrics |= {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        # Under time/, since it depends on what the process has done before.
        metrics["time/compiles"] = self._compiles.count - compiled
        metrics["time/tokens_per_second"] = metrics["tokens_sampled"] / clock.seconds["iteration"]
        self._metrics.write({"iteration": done, **metrics})
        self._progress.iteration(done, metrics)
        for warning in measures.warnings(metrics):
            self._progress.note(f"iteration {done}: {warning}")
        stopped_by = None if done == total else self._stop.name
        if done == total or stopped_by or done % self.setup.config.checkpoint.every == 0:
            self._save()
        if stopped_by:
            self._checkpoints.wait()
            raise Preempted(f"{stopped_by} after iteration {done}, which is saved")

    def _learn(self, iteration: int, clock: Clock) -> dict[str, Any]:
        """One iteration: trajectories, values, advantages, updates."""
        setup, learner, progress = self.setup, self.learner, self._progress
        with clock("weights"):
            weights = learner.weights()
        progress.phase("trajectories")
        batch = trajectories.collect(setup, weights, self._graders, iteration, learner.steps, clock)
        progress.phase("values")
        given = credit.assign(setup, weights, self._graders, iteration, batch, clock)
        progress.phase("update")
        with clock("reference"):
            tokens = batch.tokens
            width = max(len(t) for t in tokens)
            temperature = setup.config.sampling.temperature
            reference, _ = scoring.score(
                self.reference, setup.model, tokens, temperature, width, keep_cache=False
            )
        with clock("update"):
            learned = learner.learn(iteration, batch, given, reference)
        metrics = measures.of_iteration(batch, given, learned, reference.tokens)
        self._rollouts.write(iteration + 1, measures.rollout_records(batch, given, TEXTS_KEPT))
        self.totals.sampled += metrics["tokens_sampled"]
        self.totals.trained += metrics["tokens_trained"]
        self._journal.forget(before=iteration)
        return metrics

    def _validate(self, iteration: int, clock: Clock) -> dict[str, Any]:
        """Accuracy on the validation problems; the weights are kept if it is the best so far."""
        self._progress.phase("validation")
        with clock("validation"):
            result = evaluate(
                self.setup,
                self.learner.weights(),
                self._graders,
                self.setup.validation,
                "validation",
                iteration,
            )
        if result.accuracy.pass_at_1 > self.best.pass_at_1:
            self.best = Best(iteration, result.accuracy.pass_at_1)
            if iteration > 0:
                self._bests.save(iteration, {"params": self.learner.state.params}, {})
        return named("validation", result)

    def _save(self) -> None:
        self._bests.wait()  # what `meta` names as the best must be there when it is read
        meta = {"best": vars(self.best), "totals": vars(self.totals)}
        self._checkpoints.save(self.iteration, self.learner.state, meta)

    def best_params(self) -> policy.Params | None:
        """Parameters of the best iteration; None for iteration 0, the start itself."""
        if self.best.iteration == 0:
            return None
        target = {"params": jax.tree.map(lambda x: x, self.learner.state.params)}
        tree, _ = self._bests.restore(self.best.iteration, target)
        return tree["params"]
