"""Updates that were skipped because a loss or gradient was not finite: when a run ends for them."""

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vinejax import processes
from vinejax.config import Config, RunError
from vinejax.files import write_atomic

FILE = "failed-batch.npz"


class Skips:
    """Counts the skipped updates in a row that this process has made of one network.

    It looks at metrics that are on the host anyway, so it may hear of an update some updates later;
    what those changed is in no checkpoint yet.
    """

    def __init__(self, config: Config, out: Path, rate: str = "update.learning_rate") -> None:
        """`out` is the run folder, `rate` the field that the update's learning rate is from."""
        self._most, self._file, self._rate = config.update.max_skipped, out / FILE, rate
        self._row = 0

    def look(self, results: Sequence[Any], batches: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Enters the metrics of updates; `batches`, made again in their order, are those of each.

        Raises RunError, with the batch on disk, at the update.max_skipped-th in a row.
        """
        for number, metrics in enumerate(results):
            self._row = self._row + 1 if metrics.skipped else 0
            if self._row >= self._most:
                self._stop(next(islice(batches, number, None)))

    def _stop(self, batch: Mapping[str, np.ndarray]) -> None:
        if processes.is_first():
            content = io.BytesIO()
            arrays: dict[str, Any] = dict(batch)
            np.savez(content, **arrays)
            write_atomic(self._file, content.getvalue())
        raise RunError(
            f"{self._row} updates in a row were skipped, as many as update.max_skipped allows: "
            f"their losses or gradients were not finite. The batch of the last one is in "
            f"{self._file}, and the newest checkpoint stays. --resume goes on from it, which helps "
            f"where the machine was at fault; otherwise start in another --out with a lower "
            f"{self._rate}"
        )
