"""Which policy SFT ends with: learning rates and epochs, compared on validation.

As in the paper (appendix C.3), where learning rates were tried for every model and the checkpoint
was picked on validation. All candidates start from the same parameters, see the demonstrations in
the same order and are evaluated on the same randomness. On disk are at any moment: what was found
(`sft.json`), the best parameters so far (`checkpoints/sft`), and the candidate in training (a
folder below), so a run that dies goes on to the same choice.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from vinejax import policy, processes, report, sharding
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, Preempted, UserError
from vinejax.grading import GraderPool
from vinejax.report import Progress
from vinejax.train import supervised
from vinejax.train.evaluation import evaluate
from vinejax.train.learning import decode_weights
from vinejax.train.setup import Setup
from vinejax.train.stopping import StopRequest

FILE = "sft.json"
# Samples of its own: validation pass@1 of iteration 0 is not the number that won.
PHASE = "sft_validation"


@dataclass(frozen=True)
class Trial:
    """A policy that could be chosen, and how it did on validation."""

    learning_rate: float  # peak
    epoch: float  # passes over the demonstrations
    step: int  # updates of this candidate
    update: int  # updates of all candidates so far: the number of its checkpoint, if it was best
    pass_at_1: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        low, high = (100 * end for end in self.interval)
        return (
            f"learning rate {self.learning_rate:g}, epoch {self.epoch:g}: "
            f"validation pass@1 {100 * self.pass_at_1:.1f} % ({low:.1f} to {high:.1f})"
        )


def fine_tune(
    setup: Setup,
    params: policy.Params,
    examples: Sequence[supervised.Demonstration],
    out: Path,
    graders: GraderPool,
    progress: Progress,
    stop: StopRequest,
) -> policy.Params:
    """The parameters after the SFT phase of the run in `out`, which `checkpoints/sft` ends with.

    Without anything to compare it is `supervised.fine_tune` and nothing else. Raises Preempted.
    """
    if not compares(setup.config):
        place = out / "checkpoints" / "sft"
        return supervised.fine_tune(setup, params, examples, place, progress, stop, out)
    with _Comparison(setup, len(examples), out, graders, progress, stop) as comparison:
        comparison.run(params, examples)
        return comparison.chosen_params(params)


def compares(config: Config) -> bool:
    """Whether the SFT phase has more than one possible result."""
    return bool(config.sft.learning_rates) or config.sft.select == "validation"


class _Comparison:
    """The trials of a run, those that are on disk included."""

    def __init__(
        self,
        setup: Setup,
        count: int,
        out: Path,
        graders: GraderPool,
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        sft = setup.config.sft
        self._setup, self._graders, self._progress, self._stop = setup, graders, progress, stop
        self._rates = sft.learning_rates or (sft.learning_rate,)
        ends = supervised.epoch_ends(setup.config, count)
        self._total = max(ends)
        self._ends = ends if sft.select == "validation" else {self._total: ends[self._total]}
        self._out, self._file, self._folder = out, out / FILE, out / "checkpoints" / "sft"
        self._trials: list[Trial] = []
        if processes.on_first(self._file.exists):
            self._trials = _read(self._file)
        else:  # without it everything is done again, from the start
            _remove(self._folder)
            self._write()
        # Two, since the best of the file has to stay until a better one is in the file.
        self._kept = Checkpoints(self._folder, keep=2)
        self._kept.delete_after(self._best().update if self._trials else 0)

    def __enter__(self) -> "_Comparison":
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def run(self, params: policy.Params, examples: Sequence[supervised.Demonstration]) -> None:
        """All trials that are left."""
        for i, rate in enumerate(self._rates):
            before = i * self._total
            folder = self._folder / f"lr-{float(rate)!r}"
            if not self._knows(before + self._total):
                stopped_by = self._stop.heard()
                if stopped_by and i > 0:
                    trained = f"SFT with learning rate {self._rates[i - 1]:g}"
                    raise Preempted(f"{stopped_by} after {trained}, which is saved")
                self._progress.note(f"SFT with learning rate {rate:g}")
                sft = replace(self._setup.config.sft, learning_rate=rate)
                setup = replace(self._setup, config=replace(self._setup.config, sft=sft))
                at = {
                    step: partial(self._try, rate, epoch, step, before + step)
                    for step, epoch in self._ends.items()
                }
                supervised.fine_tune(
                    setup, params, examples, folder, self._progress, self._stop, self._out, at
                )
            _remove(folder)  # moments and all: nothing reads it again

    def chosen_params(self, start: policy.Params) -> policy.Params:
        """The best parameters, from disk, with the shapes of `start`; they lie as in training."""
        mesh = self._setup.mesh
        master = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, np.float32), start)
        if mesh.size > 1:
            placed = sharding.shardings(mesh, policy.logical_axes(self._setup.model))
            master = jax.tree.map(lambda x, where: x.update(sharding=where), master, placed)
        tree, _ = self._kept.restore(self._best().update, {"params": master})
        return tree["params"]

    def _try(
        self, rate: float, epoch: float, step: int, update: int, params: policy.Params
    ) -> None:
        """Evaluates `params`, unless that is already in the file; keeps them if they are best."""
        if self._knows(update):
            return
        stopped_by = self._stop.heard()
        if stopped_by:
            raise Preempted(f"{stopped_by} after SFT step {step}, which is saved")
        self._progress.phase("validation")
        weights = decode_weights(self._setup, params)
        problems = self._setup.validation
        found = evaluate(self._setup, weights, self._graders, problems, PHASE, 0).accuracy
        trial = Trial(rate, epoch, step, update, found.pass_at_1, found.interval)
        if not self._trials or trial.pass_at_1 > self._best().pass_at_1:
            self._kept.save(update, {"params": params}, {"trial": vars(trial)})
            self._kept.wait()  # what the file names as the best must be there when it is read
        self._trials.append(trial)
        self._write()
        self._progress.note(f"SFT with {trial}")
        if self._is_complete():
            self._progress.note(f"SFT is over; chosen is {self._best()}")

    def _best(self) -> Trial:
        """The first of the best ones."""
        return max(self._trials, key=lambda trial: trial.pass_at_1)

    def _knows(self, update: int) -> bool:
        return any(trial.update == update for trial in self._trials)

    def _is_complete(self) -> bool:
        return len(self._trials) == len(self._rates) * len(self._ends)

    def _write(self) -> None:
        rows = [vars(trial) for trial in self._trials]
        chosen = vars(self._best()) if self._is_complete() else None
        if processes.is_first():
            report.write_json(self._file, {"trials": rows, "chosen": chosen})


def _remove(folder: Path) -> None:
    """Removes a folder that no process uses any more."""
    processes.meet()
    processes.on_first(partial(shutil.rmtree, folder, ignore_errors=True))


def _read(path: Path) -> list[Trial]:
    try:
        rows = json.loads(path.read_text())["trials"]
        return [Trial(**row | {"interval": tuple(row["interval"])}) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): delete it to have the comparison done again, "
            "or start in another output folder"
        ) from error
