"""A profile of one iteration, for TensorBoard, XProf or Perfetto."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

FOLDER = "profile"
HOST_LEVEL = 2  # compiled programs and phases, without each call of a Python function


@contextlib.contextmanager
def profiled(out: Path, wanted: bool) -> Iterator[None]:
    """What JAX does inside goes to `out`/profile, if `wanted`; phases are named as in time/*."""
    if not wanted:
        yield
        return
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, HOST_LEVEL
    with jax.profiler.trace(str(out / FOLDER), profiler_options=options):
        yield
