"""A phase that takes far longer than it has so far is reported: a device or a disk may hang."""

import logging
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from vinejax import processes
from vinejax.report import Progress
from vinejax.report.summary import duration

FLOOR = 600.0  # seconds that a phase may always take
FACTOR = 20  # and so many times its median so far
WINDOW = 100  # durations of a phase that the median is of
LOOK = 5.0  # seconds between looks


class Watchdog:
    """Follows the phases of `progress` from a thread of its own; a context manager.

    It only tells: a phase that is slow for a good reason goes on undisturbed. `clock` gives
    seconds.
    """

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._lock, self._over = threading.Lock(), threading.Event()
        self._name, self._begin, self._told = "start", clock(), False
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._thread = threading.Thread(target=self._follow, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._progress.on_phase = self.phase
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def phase(self, name: str) -> None:
        """A phase begins, and the one before is over."""
        with self._lock:
            now = self._clock()
            before, seconds, told = self._name, now - self._begin, self._told
            self._seconds[before].append(seconds)
            self._name, self._begin, self._told = name, now, False
        if told:
            self._say(f"{before} is over after {duration(seconds)}")

    def look(self) -> None:
        """Says so, once, if the phase takes too long."""
        with self._lock:
            name, seconds, known = self._name, self._clock() - self._begin, self._seconds
            usual = statistics.median(known[name]) if known[name] else None
            if self._told or seconds <= max(FLOOR, FACTOR * (usual or 0.0)):
                return
            self._told = True
        compared = "for the first time" if usual is None else f"it usually takes {duration(usual)}"
        self._say(
            f"{name} has taken {duration(seconds)} ({compared}): if nothing compiles and the "
            "device or the disk does nothing, end the process and go on with --resume"
        )

    def _say(self, text: str) -> None:
        if processes.is_first():
            self._progress.note(text)
        else:  # whose progress nobody sees
            logging.getLogger("vinejax").warning(text)

    def _follow(self) -> None:
        while not self._over.wait(LOOK):
            self.look()
