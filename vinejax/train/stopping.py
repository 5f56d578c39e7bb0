"""Stopping a run from outside, so that it can go on: SIGTERM (a preemption notice) and Ctrl-C."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from vinejax import processes

ASK_EVERY = 10  # optimizer steps between which several processes do not ask each other

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Hears the first SIGTERM or SIGINT; a second SIGINT stops at once. A context manager.

    Who works looks at `heard` where it can save. Outside the main thread, which alone gets signals,
    nothing is heard.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.name: str | None = None  # of the signal, once there was one
        self._note = note
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._hear) for s in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heard(self, step: int = 0) -> str | None:
        """The name of a signal that some process of the run has heard: the same answer for all.

        To ask the others is to wait for the device, so in a loop of optimizer steps it is done at
        every `ASK_EVERY`-th `step` only. A single process always knows.
        """
        if processes.count() > 1 and step % ASK_EVERY:
            return None
        return processes.first_of(self.name)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name
        self._note(f"{self.name}: saving after this step, then stopping (Ctrl-C stops at once)")
