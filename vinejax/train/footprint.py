"""What a run holds of the machine: memory and open files, to see that a long one does not grow."""

import os
from pathlib import Path

import jax

PREFIX = "machine/"  # These numbers differ between equal runs, as those under time/ do.
_MB = 1e6


def footprint() -> dict[str, float]:
    """Memory of this process and of its first device, in megabytes, and its open files.

    A number is left out where the system does not tell: resident memory and files without /proc,
    the device's memory on a CPU.
    """
    found: dict[str, float] = {}
    if (pages := _resident_pages()) is not None:
        found["resident_mb"] = pages * os.sysconf("SC_PAGE_SIZE") / _MB
        found["open_files"] = len(os.listdir("/proc/self/fd"))
    of_device = jax.local_devices()[0].memory_stats()
    if of_device:
        found["device_mb"] = of_device["bytes_in_use"] / _MB
        found["device_peak_mb"] = of_device["peak_bytes_in_use"] / _MB
    return {PREFIX + name: value for name, value in found.items()}


def _resident_pages() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
