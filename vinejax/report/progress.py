"""What a person sees while a run goes: a live line on a terminal, plain lines elsewhere."""

import collections
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rich import progress
from rich.console import Console

from vinejax.report.summary import duration

REWARD = "reward"
PASS_AT_1 = "validation/pass_at_1"
SPEED = "time/tokens_per_second"

_WINDOW = 20  # iterations in the mean that the time left is computed from
_WIDE = 100  # columns of a terminal from which on there is room for a bar
_FRONT = 22  # columns of phase and count


class Progress:
    """Phase, iteration, reward, last validation pass@1, tokens/s and time left, on standard error.

    A context manager. All numbers come from the host: nothing here waits for a device. On a
    terminal the line refreshes itself twice a second; elsewhere there is one plain line for each
    iteration and each SFT report, free of control characters.
    """

    def __init__(
        self,
        total_iterations: int,
        stream: TextIO | None = None,
        start_iteration: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total = total_iterations
        self._done = start_iteration
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._mark = clock()
        self._seconds: collections.deque[float] = collections.deque(maxlen=_WINDOW)
        self._finished = 0  # by this process
        self._pass_at_1: float | None = None
        self.on_phase: Callable[[str], None] = lambda name: None  # called with each phase's name
        self._bar: progress.Progress | None = None
        if self._stream.isatty() and os.environ.get("TERM") != "dumb":
            self._bar = _bar(self._stream)
            self._bar.add_task("starting", total=total_iterations, numbers="")
            self._show(completed=start_iteration)

    def __enter__(self) -> "Progress":
        self._mark = self._clock()
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def phase(self, name: str) -> None:
        """Show what the run does now ("sampling", "values", "update", ...); terminals only."""
        self.on_phase(name)
        self._show(description=name, completed=self._done, total=self._total)

    def iteration(self, i: int, metrics: Mapping[str, Any]) -> None:
        """Iteration `i` (counted from 1) is done; shows what `metrics` has of the known keys."""
        self.on_phase("checkpoint")
        self._note_time()
        self._done = i
        if metrics.get(PASS_AT_1) is not None:
            self._pass_at_1 = float(metrics[PASS_AT_1])
        numbers = self._numbers(metrics)
        if self._bar:
            self._show(completed=i, total=self._total, numbers=_fitting(numbers, self._bar.console))
        else:
            self.note(f"iteration {i}/{self._total}  {'  '.join(numbers)}")

    def supervised(self, step: int, total: int, loss: float, name: str = "SFT") -> None:
        """A report from training on given responses: optimizer steps done, and the loss in nats."""
        self.on_phase(name)
        self._mark = self._clock()
        self._show(description=name, completed=step, total=total, numbers=f"loss {loss:.4f}")
        if not self._bar:
            self.note(f"{name} step {step}/{total}  loss {loss:.4f}")

    def note(self, text: str) -> None:
        """Print a line that stays. Control characters, which samples may contain, are escaped."""
        text = _printable(text)
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False, emoji=False)
        else:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()

    def time_left(self) -> float | None:
        """Seconds, from the mean of the last iterations; None before the second one is done."""
        if not self._seconds:
            return None
        return (self._total - self._done) * sum(self._seconds) / len(self._seconds)

    def _show(self, **fields: Any) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], **fields)

    def _note_time(self) -> None:
        now = self._clock()
        if self._finished:  # the first one of a process compiled: it says nothing of the others
            self._seconds.append(now - self._mark)
        self._mark = now
        self._finished += 1

    def _numbers(self, metrics: Mapping[str, Any]) -> list[str]:
        shown = []
        if metrics.get(REWARD) is not None:
            shown.append(f"reward {float(metrics[REWARD]):.3f}")
        if self._pass_at_1 is not None:
            shown.append(f"validation pass@1 {100 * self._pass_at_1:.1f} %")
        if metrics.get(SPEED) is not None:
            shown.append(f"{float(metrics[SPEED]):,.0f} tokens/s")
        left = self.time_left()
        if left is not None:
            shown.append(f"{duration(left)} left")
        return shown


def _fitting(numbers: list[str], console: Console) -> str:
    """As many as a narrow terminal has columns for, the last one (the time left) in any case."""
    shown = list(numbers)
    while len(shown) > 1 and _FRONT + len("  ".join(shown)) > console.width < _WIDE:
        shown.pop(-2)
    return "  ".join(shown)


def _bar(stream: TextIO) -> progress.Progress:
    console = Console(file=stream, force_terminal=True)
    return progress.Progress(
        progress.TextColumn("{task.description:<12}", markup=False),
        *([progress.BarColumn(bar_width=10)] if console.width >= _WIDE else []),
        progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        progress.TextColumn("{task.fields[numbers]}", markup=False),
        console=console,
        refresh_per_second=2,
        redirect_stdout=False,  # standard output carries results; they must not move to stderr
    )


def _printable(text: str) -> str:
    return "".join(
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )
