"""What a measurement ran on, and the clocks that it is read from."""

import os
import platform
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

PEAK_SIZE = 2048  # of the square fp32 matrix product that peaks are measured with
PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "numpy",
    "optax",
    "torch",
    "transformers",
    "google-tunix",
    "vinejax",
)


def cpu_seconds() -> float:
    """User and system time of this process so far, all its threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def pinned() -> Iterator[int | None]:
    """Ties this process, and those that it starts meanwhile, to one core.

    Yields the core's number; None where the system cannot do it.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield max(before)
    finally:
        os.sched_setaffinity(0, before)


def one_thread() -> dict[str, str]:
    """Environment of a process whose libraries use one thread each."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    return {
        **os.environ,
        "XLA_FLAGS": flags.strip(),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }


def peak_gflops(product: Callable[[], None], size: int = PEAK_SIZE, repeats: int = 3) -> float:
    """GFLOP per CPU-second of `product`, one square fp32 matrix product of `size`; the best run."""
    product()
    best = float("inf")
    for _ in range(repeats):
        before = cpu_seconds()
        product()
        best = min(best, cpu_seconds() - before)
    return 2 * size**3 / max(best, 1e-9) / 1e9


def describe() -> dict[str, Any]:
    """The machine and the versions of what is installed; names no host and no user."""
    return {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of the installed packages that decide a result."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
