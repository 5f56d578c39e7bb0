"""A phase that hangs is reported once, by a clock that the test turns."""

import io
import logging
import threading
import time

import pytest

from vinejax import processes
from vinejax.report import Progress
from vinejax.train import watchdog
from vinejax.train.watchdog import Watchdog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


def dog_of(shown: io.StringIO, clock: Clock) -> Watchdog:
    """Without its thread: the test looks."""
    progress = Progress(10, shown)
    dog = Watchdog(progress, clock)
    progress.on_phase = dog.phase
    return dog


def test_ten_minutes_are_always_allowed_and_a_hang_is_told_once_with_its_end(shown: io.StringIO):
    clock = Clock()
    dog = dog_of(shown, clock)
    dog.phase("values")
    for clock.now in (300.0, 600.0):
        dog.look()
    assert shown.getvalue() == ""
    for clock.now in (601.0, 700.0, 5000.0):
        dog.look()
    (line,) = shown.getvalue().splitlines()
    assert line.startswith("values has taken 10:01 (for the first time)")
    assert "--resume" in line
    dog.phase("update")
    assert shown.getvalue().splitlines()[1:] == ["values is over after 1:23:20"]


def test_a_slow_phase_has_twenty_times_its_median(shown: io.StringIO):
    clock = Clock()
    dog = dog_of(shown, clock)
    for seconds in (3600, 100, 90, 110, 100):  # the first one compiled
        dog.phase("trajectories")
        clock.now += seconds
        dog.phase("update")
        clock.now += 1
    dog.phase("trajectories")
    clock.now += 2000
    dog.look()
    assert shown.getvalue() == ""
    clock.now += 1
    dog.look()
    assert "trajectories has taken 33:21 (it usually takes 1:40)" in shown.getvalue()


def test_reports_of_training_and_iterations_are_signs_of_life(shown: io.StringIO):
    clock = Clock()
    dog = dog_of(shown, clock)
    for step in range(1, 20):
        clock.now += 500
        dog._progress.supervised(step, 20, 1.0)
        dog.look()
    dog._progress.iteration(1, {})
    clock.now += 599
    dog.look()
    assert "has taken" not in shown.getvalue()
    clock.now += 2
    dog.look()
    assert "checkpoint has taken" in shown.getvalue()


def test_the_thread_looks_by_itself_and_ends(shown: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchdog, "LOOK", 0.005)
    monkeypatch.setattr(watchdog, "FLOOR", 0.0)
    with Progress(1, shown) as progress, Watchdog(progress):
        deadline = time.monotonic() + 60
        while "start has taken" not in shown.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "start has taken" in shown.getvalue()
    assert not [t for t in threading.enumerate() if t.name == "watchdog"]


def test_other_processes_say_it_in_the_log(
    shown: io.StringIO, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock = Clock()
    dog = dog_of(shown, clock)
    monkeypatch.setattr(processes, "is_first", lambda: False)
    clock.now = 700.0
    with caplog.at_level(logging.WARNING, "vinejax"):
        dog.look()
    assert shown.getvalue() == ""
    assert "start has taken 11:40" in caplog.text
