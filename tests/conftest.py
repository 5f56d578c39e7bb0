"""Eight pretended CPU devices for every test, and a count of what could not be tested here.

This file is imported before any test, so the variables are set before JAX reads them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from vinejax.train.clock import CompileCounter

# Eight devices on two busy cores can keep each other waiting for longer than the default 40 s.
_DEVICES = (
    "--xla_force_host_platform_device_count=8 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=300"
)
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}".strip()
os.environ["JAX_PLATFORMS"] = "cpu"
_CACHE = Path.home() / ".cache" / "vinejax" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


# The same examples everywhere, and no verdict that depends on how busy the machine is.
hypothesis.settings.register_profile("vinejax", deadline=None, derandomize=True)
# `make fuzz`: other examples every time, and many of them.
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "100")), print_blob=True
)
hypothesis.settings.load_profile("vinejax")


@pytest.fixture(scope="session")
def external_data() -> Path:
    """The folder that VINEJAX_DATA names (see BUILD.md); without it the test skips."""
    folder = os.environ.get("VINEJAX_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("VINEJAX_DATA names no folder")
    return Path(folder)


@pytest.fixture
def compiles() -> Iterator["CompileCounter"]:
    """Counts the programs that are compiled from here on."""
    from vinejax.train.clock import CompileCounter

    counter = CompileCounter()
    yield counter
    counter.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line at the end: what was skipped because torch or outside data is missing."""
    reasons = [
        str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    ]
    torch = sum("torch" in reason for reason in reasons)
    data = sum("VINEJAX_" in reason for reason in reasons)
    terminalreporter.write_line(
        f"not tested here: {torch} for lack of torch (requirements-parity.txt), "
        f"{data} for lack of outside data (VINEJAX_*, see BUILD.md)"
    )
