"""The end of a run: `summary.json`, and a short table of it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from vinejax.files import write_json

FILE = "summary.json"

# Policies of a summary: prefix of their keys, and what they are called.
_POLICIES = (("sft", "after SFT"), ("final", "at the end"), ("best", "of the best iteration"))
_COUNTS = (
    ("best iteration (on validation)", "best_iteration"),
    ("iterations", "iterations"),
    ("episodes", "episodes"),
    ("test problems", "problems"),
    ("samples a problem", "samples"),
    ("tokens sampled", "tokens_sampled"),
    ("tokens trained", "tokens_trained"),
)


def write_summary(folder: str | Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json` into the run's folder, atomically."""
    write_json(Path(folder) / FILE, summary)


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Rows for what the summary holds: pass@1 in percent with 95 % intervals, time, tokens.

    The share with full marks stands below a pass@1 that contains partial grades.
    """
    table = Table(title=_title(summary), title_justify="left", box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    for name, title in _POLICIES:
        mean, full = summary.get(f"{name}_pass_at_1"), full_marks(summary, f"{name}_")
        if mean is not None:
            shown = "pass@1" if full is None else "pass@1 (mean grade)"
            interval = _interval(summary.get(f"{name}_interval"))
            table.add_row(f"{shown} {title}", f"{100 * mean:.1f} %", interval)
        if full is not None:
            table.add_row("  of them full marks", f"{100 * full:.1f} %", "")
    for title, key in _COUNTS:
        if summary.get(key) is not None:
            table.add_row(title, f"{summary[key]:,}", "")
    if summary.get("seconds") is not None:
        table.add_row("time", duration(summary["seconds"]), "")
    return table


def full_marks(numbers: Mapping[str, Any], prefix: str = "") -> float | None:
    """The share of answers with full marks, where it is below pass@1: some got a part of them.

    None where every grade is 0 or 1, as then it is pass@1 itself, and where it is not known.
    """
    mean, share = (numbers.get(f"{prefix}{name}") for name in ("pass_at_1", "full_marks_share"))
    return None if mean is None or share is None or share > mean - 1e-9 else share


def print_summary(summary: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Print the table, to standard error unless told otherwise; plain text off a terminal."""
    out: TextIO = stream or sys.stderr
    terminal = out.isatty()
    console = Console(file=out, force_terminal=terminal, width=None if terminal else 100)
    console.print(summary_table(summary))


def duration(seconds: float) -> str:
    """Such as 0:07, 12:34, 1:02:03, or ? for what is not known."""
    if not 0 <= seconds < float("inf"):
        return "?"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _title(summary: Mapping[str, Any]) -> str:
    seed = "" if summary.get("seed") is None else f", seed {summary['seed']}"
    return f"{summary.get('algorithm', 'run')}{seed}"


def _interval(interval: Any) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"({100 * low:.1f} to {100 * high:.1f})"
