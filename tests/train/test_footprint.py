"""What a run holds of the machine is stated with every iteration."""

import sys
from pathlib import Path

import numpy as np
import pytest

from vinejax.train.footprint import footprint

LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


@LINUX
def test_memory_follows_what_is_allocated():
    before = footprint()["machine/resident_mb"]
    held = np.ones(100_000_000, np.uint8)
    grown = footprint()["machine/resident_mb"] - before
    assert 80 <= grown <= 130, (before, grown, held[0], sys.platform)


@LINUX
def test_open_files_are_counted(tmp_path):
    before = footprint()["machine/open_files"]
    with open(tmp_path / "a", "w"), open(tmp_path / "b", "w"):
        assert footprint()["machine/open_files"] == before + 2
