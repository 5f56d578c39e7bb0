"""Training on a fixed set of a run's own responses: shuffled epochs, checkpoints of its own.

One folder a round, `checkpoints/round-3`, of which the newest is kept. What is trained on follows
from `rollouts/` and the seed, so the policy, the optimizer and a few sums are all that a killed
training needs to go on to the same end.
"""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from vinejax import policy, processes, report, sharding, update
from vinejax.checkpoint import Checkpoints
from vinejax.config import Preempted
from vinejax.train import batches
from vinejax.train.algorithms.base import Context
from vinejax.train.clock import Clock
from vinejax.train.selection import Sampled
from vinejax.train.skipped import Skips
from vinejax.update.state import Trainable

SAVE_EVERY = 500  # updates between checkpoints (the authors')
REPORT_EVERY = 50
COUNTS = ("skipped", "tokens")


@dataclass(frozen=True)
class Response:
    """Prompt and response in tokens, as they were sampled."""

    tokens: np.ndarray  # int32
    prompt_length: int
    ref_logp: float  # of the response by the policy after SFT, nats, at the sampling temperature


@dataclass(frozen=True)
class Work:
    """A training: its update, and what it is fed."""

    name: str  # what the user sees
    sharded: update.Sharded
    batch: type[update.SftBatch] | type[update.PairBatch]
    rows: Callable[[int], dict[str, np.ndarray]]  # fields of the batch of an update, from 0
    total: int  # updates


@dataclass
class Course:
    """How a training has gone; kept in its checkpoints."""

    sums: dict[str, float] = field(default_factory=dict)  # of each metric, over updates
    last: dict[str, float] = field(default_factory=dict)
    updates: int = 0
    validations: list[list[float]] = field(default_factory=list)  # [updates, pass@1]
    stopped: bool = False  # before all updates were done

    def add(self, results: Sequence[Any]) -> None:
        """Enters the metrics of updates, one by one, so that it does not matter when."""
        for metrics in results:
            self.last = {f.name: float(getattr(metrics, f.name)) for f in fields(metrics)}
            for name, value in self.last.items():
                # One skipped update would make every mean not a number.
                if not self.last["skipped"] or name in COUNTS:
                    self.sums[name] = self.sums.get(name, 0.0) + value
            self.updates += 1

    def metrics(self) -> dict[str, Any]:
        """Means over the updates that were made, as metrics of the iteration; counts are sums."""
        skipped = self.sums.get("skipped", 0.0)
        made = self.updates - skipped
        means = {f"training/{n}": s / made for n, s in self.sums.items() if made and n != "skipped"}
        return means | {
            "skipped": skipped,
            "training/updates": self.updates,
            "training/loss_last": self.last["loss"],
            "training/learning_rate": self.last["learning_rate"],
            "tokens_trained": int(self.sums["tokens"]),
        }


Check = Callable[[int, Course], None]


def read(out: Path, iterations: range) -> dict[Sampled, Response]:
    """Everything that was sampled in some iterations, counted from 1 as in `rollouts/`.

    What the policy after SFT has no finite log-probability for is left out.
    """
    found = {}
    for iteration in iterations:
        for sample, record in enumerate(report.read_rollouts(out, iteration)):
            if record["ref_logp"] is None:
                continue
            origin = Sampled(record["problem"], iteration, sample, record["reward"])
            tokens = np.array(record["tokens"], np.int32)
            found[origin] = Response(tokens, record["prompt_length"], record["ref_logp"])
    return found


def updates_of(epochs: int, count: int, size: int) -> int:
    """Updates on batches of `size` that make so many passes over `count` examples; at least 1."""
    return max(1, round(epochs * count / size))


def padded(responses: Sequence[Response]) -> dict[str, np.ndarray]:
    """See `batches.padded`."""
    return batches.padded([r.tokens for r in responses], [r.prompt_length for r in responses])


def folder_of(out: Path, round: int) -> Path:
    """Where the training of a round, counted from 0, keeps its checkpoints; others' are removed."""
    own = out / "checkpoints" / f"round-{round + 1}"
    if processes.is_first():
        for other in own.parent.glob("round-*"):
            if other != own:
                shutil.rmtree(other)
    return own


def start(context: Context, params: policy.Params, settings: Trainable, steps: int = 0) -> None:
    """Makes `params`, which have seen so many updates, the policy, with a new optimizer."""
    state = update.init(params, settings, mesh_of(context))
    context.learner.state = replace(state, step=state.step + steps)


def mesh_of(context: Context) -> Mesh | None:
    """The devices that updates are spread over; None for a single one."""
    mesh = context.setup.mesh
    return None if mesh.size == 1 else mesh


def train(
    context: Context,
    work: Work,
    folder: Path,
    clock: Clock,
    due: Collection[int] = (),
    check: Check | None = None,
) -> Course:
    """Makes the updates of `work`, from `learner.state` on or from the newest checkpoint.

    `check` is called after those numbers of updates that are `due`, and may set `stopped`. A
    checkpoint is there by then, so a training that goes on from it makes the call again. Raises
    Preempted, saved, on a stop request, and RunError after too many skipped updates in a row.
    """
    skips = Skips(context.setup.config, context.out)
    learner, stop, course = context.learner, context.stop, Course()
    pending: list[Any] = []
    with Checkpoints(folder, keep=1) as checkpoints:
        restored = checkpoints.restore_latest(learner.state)
        if restored is not None:
            _, learner.state, meta = restored
            course = Course(**meta)
        done = learner.steps
        while True:
            if check is not None and done in due:
                check(done, course)
            if done == work.total or course.stopped:
                break
            with clock("update"):
                rows = sharding.place(work.rows(done), work.sharded.batch_sharding)
                learner.state, metrics = work.sharded.step(learner.state, work.batch(**rows))
                pending.append(metrics)
                done += 1
                if done % REPORT_EVERY == 0 or done == work.total:
                    context.progress.supervised(done, work.total, float(metrics.loss), work.name)
                stopped_by = stop.heard(done)
                if done % SAVE_EVERY == 0 or done == work.total or done in due or stopped_by:
                    results = jax.device_get(pending)
                    skips.look(results, map(work.rows, range(done - len(pending), done)))
                    course.add(results)
                    pending.clear()
                    checkpoints.save(done, learner.state, asdict(course))
            if stopped_by and (done < work.total or done in due):
                checkpoints.wait()
                raise Preempted(f"{stopped_by} after {work.name} step {done}, which is saved")
    return course
