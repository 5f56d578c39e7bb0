"""Where the time of an iteration goes, and how often something was compiled."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
LOWERED_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # comes right before it
TICKS = os.sysconf("SC_CLK_TCK")  # a second, in /proc


def cpu_seconds() -> float:
    """User and system time so far of this process and of those that it has started.

    Processes that still run count where the system has /proc; elsewhere a process counts from the
    moment when it has ended.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(u.ru_utime + u.ru_stime for u in used)
    return own + sum(_running(child) for child in _children("self"))


class Clock:
    """Seconds by the name of a part, on the wall and of CPUs; parts may repeat.

    `work` gives the CPU seconds that have been used so far.
    """

    def __init__(self, work: Callable[[], float] = cpu_seconds) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self._work = work

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time inside to `name`."""
        begin, before = time.perf_counter(), self._work()
        try:
            with jax.profiler.TraceAnnotation(name):  # nothing unless a profile is taken
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + self._work() - before


class CompileCounter:
    """How many programs the process has compiled, or read from the cache, since the start."""

    def __init__(self) -> None:
        self.count = 0
        self.cpu_seconds = 0.0  # that this took
        # CPU seconds when a thread's latest program was ready for it; several compile at a time.
        self._lowered: dict[int, float] = {}
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: object) -> None:
        thread = threading.get_ident()
        if event == LOWERED_EVENT:
            self._lowered[thread] = cpu_seconds()
        elif event == COMPILE_EVENT:
            self.count += 1
            lowered = self._lowered.pop(thread, None)
            if lowered is not None:
                most = duration_secs * (os.cpu_count() or 1)
                self.cpu_seconds += min(cpu_seconds() - lowered, most)

    def other_work(self) -> float:
        """CPU seconds so far without those of compiling, which depend on what a cache holds."""
        return cpu_seconds() - self.cpu_seconds

    def close(self) -> None:
        """Stops listening."""
        jax.monitoring.unregister_event_duration_listener(self._hear)


def _children(process: str) -> list[str]:
    """Ids of the processes that a process has started and that still run."""
    found: list[str] = []
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += listing.read_text().split()
    return found


def _running(process: str) -> float:
    """CPU seconds of a process, of those that it has started, and of what those have started."""
    try:
        # The second field, the name, is in brackets and may hold blanks.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    # proc_pid_stat(5): utime, stime, cutime, cstime, fields 14 to 17 of the line.
    return sum(map(int, fields[11:15])) / TICKS + sum(_running(c) for c in _children(process))
