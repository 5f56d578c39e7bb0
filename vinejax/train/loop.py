"""The outer loop of all methods: the one place where the stages of an iteration meet."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from vinejax import policy, processes
from vinejax.checkpoint import Checkpoints
from vinejax.config import Preempted
from vinejax.grading import Faults
from vinejax.journal import Journal
from vinejax.report import MetricsLog, RolloutLog, write_json
from vinejax.report.costs import CPU
from vinejax.report.metrics import START
from vinejax.train import alarms, algorithms, exchange, folder, trajectories
from vinejax.train.algorithms.base import Context
from vinejax.train.clock import Clock, CompileCounter
from vinejax.train.evaluation import evaluate, named
from vinejax.train.footprint import footprint
from vinejax.train.profile import profiled
from vinejax.update import State

GRADED = ("trajectories", "values")  # phases whose answers are what is learned from


@dataclass(frozen=True)
class Best:
    """The iteration with the highest validation accuracy; among equal ones the first."""

    iteration: int
    pass_at_1: float


def newest_iteration(out: Path) -> int:
    """The iteration that a run in `out` would go on from."""
    path = out / "checkpoints" / "policy"
    if not processes.on_first(path.is_dir):
        return 0
    with Checkpoints(path, read_only=True) as checkpoints:
        return checkpoints.latest() or 0


class Reinforcement:
    """The state of a run after SFT, and how it goes on by one iteration.

    `algorithms.base` says what a method must know of it.
    """

    def __init__(self, context: Context, journal: Journal) -> None:
        self.setup, self.learner = context.setup, context.learner
        self.iteration, self.best = 0, Best(0, -1.0)
        self.algorithm = algorithms.get(self.setup.config.algorithm)(context)
        self._graders, self._progress, self._stop = context.graders, context.progress, context.stop
        self._journal, out = journal, context.out
        self._out, self._profiled = out, context.profile
        checkpoint = self.setup.config.checkpoint
        self._checkpoints = Checkpoints(
            out / "checkpoints" / "policy", checkpoint.keep, checkpoint.keep_period or None
        )
        self._bests = Checkpoints(out / "checkpoints" / "best", keep=2)
        self._restore()
        self._metrics, self._rollouts = None, None
        if processes.is_first():
            self._metrics = MetricsLog(out, self.iteration)
            self._rollouts = RolloutLog(out)
            self._rollouts.delete_after(self.iteration)
        self._compiles = CompileCounter()
        self._bell = alarms.Bell()
        self._faults = Faults()  # of this iteration's grading, its validation included

    def __enter__(self) -> "Reinforcement":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack = contextlib.ExitStack()  # each is closed whatever happens to the others
        for resource in (self._bests, self._checkpoints, self._metrics, self._compiles):
            if resource is not None:
                stack.callback(resource.close)
        stack.__exit__(kind, error, trace)

    def _saved(self) -> dict[str, Any]:
        """All arrays of a checkpoint: the policy's state on top, the method's below a name."""
        return {**vars(self.learner.state), "algorithm": self.algorithm.state}

    def _restore(self) -> None:
        restored = self._checkpoints.restore_latest(self._saved())
        if restored is not None:
            self.iteration, tree, meta = restored
            self.algorithm.state = tree.pop("algorithm")
            self.learner.state = State(**tree)
            self.best = Best(**meta["best"])
        for checkpoints in (self._checkpoints, self._bests):
            checkpoints.delete_after(self.iteration)

    def run(self) -> None:
        """All iterations that are left, with validation and checkpoints on the way."""
        total = folder.iterations(self.setup.config)
        if self.iteration == 0:
            found = self._validate(0, Clock())
            if processes.is_first():
                write_json(self._out / START, {"iteration": 0, **found})
            self._tell(0, found)
        while self.iteration < total:
            self._iterate(total)
        self._checkpoints.wait()
        self._bests.wait()

    def _iterate(self, total: int) -> None:
        compiles = self._compiles
        clock, compiled = Clock(compiles.other_work), (compiles.count, compiles.cpu_seconds)
        iteration = self.iteration
        with profiled(self._out, iteration + 1 == self._profiled), clock("iteration"):
            metrics = self._learn(iteration, clock)
            self.iteration = done = iteration + 1
            if done == total or self.algorithm.validates(done):
                metrics |= self._validate(done, clock)
        metrics |= {f"time/{name}": seconds for name, seconds in clock.seconds.items()}
        metrics |= {f"{CPU}/{name}": seconds for name, seconds in clock.cpu_seconds.items()}
        # Under time/, since it depends on what the process has done before.
        metrics["time/compiles"] = compiles.count - compiled[0]
        metrics["time/compiling_cpu_seconds"] = compiles.cpu_seconds - compiled[1]
        metrics["time/tokens_per_second"] = metrics["tokens_sampled"] / clock.seconds["iteration"]
        metrics |= footprint()
        if self._metrics is not None:
            self._metrics.write({"iteration": done, **metrics})
        self._progress.iteration(done, metrics)
        self._tell(done, metrics)
        stopped_by = None if done == total else self._stop.heard()
        if done == total or stopped_by or done % self.setup.config.checkpoint.every == 0:
            self._save()
        if stopped_by:
            self._checkpoints.wait()
            raise Preempted(f"{stopped_by} after iteration {done}, which is saved")

    def _tell(self, done: int, metrics: dict[str, Any]) -> None:
        """Notes about alarms."""
        rings = alarms.ringing(metrics | {alarms.FIRST_FAULT: self._faults.first})
        for line in self._bell.lines(done, rings):
            self._progress.note(line)

    def _learn(self, iteration: int, clock: Clock) -> dict[str, Any]:
        """One iteration: trajectories, and what the method makes of them."""
        setup, learner, progress = self.setup, self.learner, self._progress
        with clock("weights"):
            weights = learner.weights()
        progress.phase("trajectories")
        batch = trajectories.collect(setup, weights, self._graders, iteration, learner.steps, clock)
        metrics, records = self.algorithm.learn(iteration, batch, weights, clock)
        if self._rollouts is not None:
            self._rollouts.write(iteration + 1, records)
            self._rollouts.keep(setup.config.checkpoint.keep_rollouts)
        processes.meet()  # the records may be read again, by all
        self._faults = exchange.all_faults(self._graders.faults(iteration, GRADED))
        metrics |= {"grading_errors": self._faults.share}
        metrics |= self.algorithm.finish(iteration, clock)
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
        self._faults = Faults.total([self._faults, result.faults])
        if result.accuracy.pass_at_1 > self.best.pass_at_1:
            self.best = Best(iteration, result.accuracy.pass_at_1)
            if iteration > 0:
                self._bests.save(iteration, {"params": self.learner.state.params}, {})
        return named("validation", result)

    def _save(self) -> None:
        self._bests.wait()  # what the checkpoint names as the best must be there when it is read
        self._checkpoints.save(self.iteration, self._saved(), {"best": vars(self.best)})

    def best_params(self) -> policy.Params | None:
        """Parameters of the best iteration; None for iteration 0, the start itself."""
        if self.best.iteration == 0:
            return None
        target = {"params": jax.tree.map(lambda x: x, self.learner.state.params)}
        tree, _ = self._bests.restore(self.best.iteration, target)
        return tree["params"]
