"""RestEM (Singh et al., arXiv 2312.06585): rounds of sampling and imitating what was right.

Numbers and stopping rule are those of the VinePPO authors.
"""

from pathlib import Path

import numpy as np

from vinejax import policy, update
from vinejax.checkpoint import Checkpoints
from vinejax.train import batches, learning, offline, selection
from vinejax.train.algorithms.base import Context, Metrics, Offline
from vinejax.train.clock import Clock
from vinejax.train.evaluation import evaluate

STREAM = 0x4E57  # keeps the order of the examples apart from the other uses of the seed


class RestEM(Offline):
    """In each round the right responses, up to a number a problem, are imitated.

    Training begins with the policy after SFT every time; what it ends with, the best on validation,
    samples the next round. A round without any right response leaves the policy as it is.
    """

    @property
    def rounds(self) -> int:
        return self.context.setup.config.restem.rounds

    def train(self, round: int, iterations: range, clock: Clock) -> Metrics:
        """Imitation of the round's right responses, stopped by validation."""
        context, config = self.context, self.context.setup.config
        name = f"RestEM round {round + 1}"
        responses = offline.read(context.out, iterations)
        examples = [responses[r] for r in selection.correct(responses, config.restem.keep)]
        if not examples:
            context.progress.note(f"{name}: no response was right, so the policy stays as it is")
            return {"training/examples": 0, "training/updates": 0}
        settings, work = self._work(name, round, examples)
        due = {*range(0, work.total, config.restem.evaluate_every), work.total}
        place = offline.folder_of(context.out, round)
        offline.start(context, context.start(), settings)
        with _Judge(context, name, place / "best", iterations[-1], clock) as judge:
            course = offline.train(context, work, place / "training", clock, due, judge)
            best = judge.best(course)
            if best != context.learner.steps:
                offline.start(context, judge.params(best), settings, best)
        return course.metrics() | {
            "training/examples": len(examples),
            "training/validations": course.validations,
            "training/updates_kept": best,
        }

    def _work(
        self, name: str, round: int, examples: list[offline.Response]
    ) -> tuple[update.SftHyper, offline.Work]:
        context, config = self.context, self.context.setup.config
        size = config.update.minibatch
        total = offline.updates_of(config.update.epochs, len(examples), size)
        settings = update.SftHyper(
            context.setup.model,
            learning.optimizer(config, config.update.learning_rate, total),
            config.update.microbatch,
            temperature=config.sampling.temperature,
        )

        def rows(step: int) -> dict[str, np.ndarray]:
            seed = (config.seed, STREAM, round)
            chosen = batches.shuffled(len(examples), size, step, seed)
            return offline.padded([examples[i] for i in chosen])

        sharded = update.make_sft_step(settings, offline.mesh_of(context))
        return settings, offline.Work(name, sharded, update.SftBatch, rows, total)


class _Judge:
    """Validation during a training: keeps the best policy on disk, and says when to stop."""

    def __init__(
        self, context: Context, name: str, folder: Path, iteration: int, clock: Clock
    ) -> None:
        self._context, self._name = context, name
        self._iteration, self._clock = iteration, clock
        # Two, since the one that a training's checkpoint knows stays until the next checkpoint.
        self._kept = Checkpoints(folder, keep=2)

    def __enter__(self) -> "_Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def __call__(self, done: int, course: offline.Course) -> None:
        """Validates the policy after `done` updates."""
        context, config = self._context, self._context.setup.config
        context.progress.phase("validation")
        with self._clock("stopping"):  # a cost of the method
            found = evaluate(
                context.setup,
                context.learner.weights(),
                context.graders,
                context.setup.validation,
                "validation",
                self._iteration,
            ).accuracy
        self._kept.delete_after(self.best(course))  # what a killed process had come to
        course.validations.append([done, found.pass_at_1])
        improves = self.best(course) == done
        if improves and done > 0:  # the start is kept anyway
            self._kept.save(done, {"params": context.learner.state.params}, {})
            self._kept.wait()
        course.stopped = not improves and config.restem.stopping == "first"
        context.progress.note(
            f"{self._name}: validation pass@1 {100 * found.pass_at_1:.1f} % after {done} updates"
        )

    def best(self, course: offline.Course) -> int:
        """Updates of the best policy, the first one of the best."""
        return int(max(course.validations, key=lambda v: v[1])[0]) if course.validations else 0

    def params(self, updates: int) -> policy.Params:
        """Those of a policy that was the best."""
        if updates == 0:
            return self._context.start()
        target = {"params": self._context.learner.state.params}
        return self._kept.restore(updates, target)[0]["params"]
