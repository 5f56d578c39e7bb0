"""`metrics.jsonl`, one JSON line an iteration, and the same numbers for TensorBoard."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2

from vinejax.config import UserError
from vinejax.files import naming, plain, write_atomic

# Classes that protobuf makes when it is imported, where no type checker sees them.
Event: Any = getattr(event_pb2, "Event")  # noqa: B009
SessionLog: Any = getattr(event_pb2, "SessionLog")  # noqa: B009
Summary: Any = getattr(summary_pb2, "Summary")  # noqa: B009

FILE = "metrics.jsonl"
START = "start.json"  # the validation before the first iteration, under the same names
WRITTEN = "time/written"  # seconds since 1970; under time/ because it differs between equal runs


class MetricsLog:
    """Appends an iteration's metrics to `metrics.jsonl` and to TensorBoard's event file.

    Opening it takes both back to `start_iteration`, the one that the run goes on from: later lines,
    and a last line that a crash cut off, are removed. The event file is written anew from the lines
    that stay, so a reader of TensorBoard never sees an iteration twice.
    """

    def __init__(self, folder: str | Path, start_iteration: int):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        before = read_metrics(self.folder)
        kept = [line for line in before if line["iteration"] <= start_iteration]
        path = self.folder / FILE
        text = "".join(_line(metrics) for metrics in kept).encode()
        if not path.exists() or path.read_bytes() != text:
            write_atomic(path, text)
        self._last = kept[-1]["iteration"] if kept else start_iteration
        self._file = path.open("ab")
        for old in self.folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._events = EventsWriter(str(self.folder / "events"))
        # A TensorBoard that is open now forgets what it read from the files removed above.
        restart = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=0, session_log=restart))
        for metrics in kept:
            self._events.write_event(_event(metrics))
        self._events.flush()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Add one line, on disk when this returns. `metrics["iteration"]` exceeds all before.

        Floats keep every bit; NaN and infinity become null. Adds the clock as `time/written`.
        """
        line = plain({**metrics, WRITTEN: time.time()})
        if line["iteration"] <= self._last:
            raise ValueError(f"iteration {line['iteration']} comes after iteration {self._last}")
        with naming(self.folder / FILE):
            self._file.write(_line(line).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self._last = line["iteration"]
        self._events.write_event(_event(line))
        self._events.flush()

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        self._events.close()


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The iterations of a run, in order; none when it has no `metrics.jsonl` yet.

    A last line that a crash cut off is left out. Any other line that is no JSON, or that repeats an
    iteration, raises UserError with its number.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return []
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            metrics = json.loads(line)
            iteration = metrics["iteration"]
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break
            raise UserError(
                f"{path}:{number} is no line of metrics: {line[:80]!r}; restore the file from a "
                "copy, or remove that line"
            ) from None
        if parsed and iteration <= parsed[-1]["iteration"]:
            raise UserError(
                f"{path}:{number} has iteration {iteration} after {parsed[-1]['iteration']}; two "
                "runs wrote into one folder: give each its own"
            )
        parsed.append(metrics)
    return parsed


def _line(metrics: Mapping[str, Any]) -> str:
    return json.dumps(metrics, allow_nan=False) + "\n"


def _event(metrics: Mapping[str, Any]) -> Any:
    """One point of every number in the line; TensorBoard has no form for the rest."""
    values = [
        Summary.Value(tag=name, simple_value=value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and name not in ("iteration", WRITTEN)
    ]
    return Event(
        wall_time=metrics.get(WRITTEN, time.time()),
        step=metrics["iteration"],
        summary=Summary(value=values),
    )
