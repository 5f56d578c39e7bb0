"""DPO-Positive (Pal et al., arXiv 2402.13228): right responses are set against wrong ones.

Numbers and the choice of pairs are those of the VinePPO authors.
"""

import numpy as np

from vinejax import update
from vinejax.train import batches, learning, offline, selection
from vinejax.train.algorithms.base import Metrics, Offline
from vinejax.train.clock import Clock

NAME = "DPO-Positive"
STREAM = 0xD9A  # keeps the order of the pairs apart from the other uses of the seed

Pair = tuple[offline.Response, offline.Response]  # chosen, rejected


class DpoPositive(Offline):
    """All iterations sample from the policy after SFT; the last one then trains on pairs.

    Without any problem that has both a right and a wrong response the policy stays as it is.
    """

    @property
    def rounds(self) -> int:
        return 1

    def train(self, round: int, iterations: range, clock: Clock) -> Metrics:
        """Epochs over all pairs."""
        context, config = self.context, self.context.setup.config
        responses = offline.read(context.out, iterations)
        origins = selection.pairs(responses, config.dpo.pairs, config.seed)
        pairs = [(responses[pair.chosen], responses[pair.rejected]) for pair in origins]
        if not pairs:
            context.progress.note(
                f"{NAME}: no problem has both a right and a wrong response, "
                "so the policy stays as it is"
            )
            return {"training/examples": 0, "training/updates": 0}
        settings, work = self._work(pairs)
        place = offline.folder_of(context.out, round)
        offline.start(context, context.start(), settings)
        course = offline.train(context, work, place / "training", clock)
        return course.metrics() | {
            "training/examples": len(pairs),
            "training/problems": len({pair.chosen.problem for pair in origins}),
        }

    def _work(self, pairs: list[Pair]) -> tuple[update.DpoHyper, offline.Work]:
        context, config = self.context, self.context.setup.config
        size = config.update.minibatch
        total = offline.updates_of(config.update.epochs, len(pairs), size)
        settings = update.DpoHyper(
            context.setup.model,
            learning.optimizer(config, config.update.learning_rate, total),
            config.update.microbatch,
            beta=config.dpo.beta,
            penalty=config.dpo.penalty,
            label_smoothing=config.dpo.label_smoothing,
            temperature=config.sampling.temperature,
        )

        def rows(step: int) -> dict[str, np.ndarray]:
            chosen = batches.shuffled(len(pairs), size, step, (config.seed, STREAM))
            sides = [side for i in chosen for side in pairs[i]]
            flat = offline.padded(sides)
            flat["ref_logp"] = np.array([side.ref_logp for side in sides], np.float32)
            return {name: x.reshape(size, 2, *x.shape[1:]) for name, x in flat.items()}

        sharded = update.make_dpo_step(settings, offline.mesh_of(context))
        return settings, offline.Work(NAME, sharded, update.PairBatch, rows, total)
