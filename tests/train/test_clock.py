"""CPU seconds: of this process and of those that it has started, compiling apart."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from vinejax.train.clock import Clock, CompileCounter, cpu_seconds

BURN = (
    "import sys, time\n"
    "while time.process_time() < 0.5: pass\n"
    "print('done', flush=True)\n"
    "sys.stdin.read()"
)


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_clock_tells_work_from_waiting():
    clock = Clock()
    with clock("waiting"):
        time.sleep(0.3)
    for _ in range(2):
        with clock("working"):
            burn(0.1)
    assert clock.seconds["waiting"] >= 0.3
    assert clock.cpu_seconds["waiting"] < 0.2
    assert clock.cpu_seconds["working"] >= 0.2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_a_process_that_still_runs_counts_and_goes_on_counting_when_it_has_ended():
    before = cpu_seconds()
    arguments = [sys.executable, "-c", BURN]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        running = cpu_seconds() - before
        child.communicate()
    tick = 2 / os.sysconf("SC_CLK_TCK")
    assert running >= 0.5 - tick
    assert cpu_seconds() - before >= running - tick


def test_compiling_is_counted_apart():
    counter = CompileCounter()
    work = Clock(counter.other_work)
    with work("first"):
        jax.jit(lambda x: jnp.sin(x) @ x.T + 1)(jnp.ones((7, 5))).block_until_ready()
    counter.close()
    assert counter.count > 0
    assert counter.cpu_seconds > 0
    assert work.cpu_seconds["first"] >= 0
    seen = counter.count
    jax.jit(lambda x: jnp.cos(x) + 2)(jnp.ones(3)).block_until_ready()
    assert counter.count == seen
