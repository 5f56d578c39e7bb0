"""What the engines that run on JAX have in common; imports nothing of vinejax."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine


def product() -> Callable[[], None]:
    """One compiled fp32 matrix product of machine.PEAK_SIZE."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(machine.PEAK_SIZE,) * 2), jnp.float32)
    multiply = jax.jit(lambda x: jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST))

    def run() -> None:
        jax.block_until_ready(multiply(x))

    return run


class Compilations:
    """Counts the programs compiled since the last look; a measured run should need none."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"

    def take(self) -> int:
        """How many since the last call."""
        count, self.count = self.count, 0
        return count
