"""Where the time of an iteration goes, and how often something was compiled."""

import contextlib
import time
from collections.abc import Iterator

import jax

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class Clock:
    """Seconds by the name of a part; parts may repeat."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time inside to `name`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


class CompileCounter:
    """How many programs the process has compiled, or read from the cache, since the start."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: object) -> None:
        self.count += event == COMPILE_EVENT

    def close(self) -> None:
        """Stops listening."""
        jax.monitoring.unregister_event_duration_listener(self._hear)
