"""One HTML file that shows a run, or several beside each other.

It needs nothing else: scripts, styles, charts and data are inside, and its content security policy
allows no request at all. `docs/reading-the-report.md` says what is on it.
"""

import string
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vinejax.config import UserError
from vinejax.files import write_atomic
from vinejax.report.metrics import WRITTEN
from vinejax.report.page import blocks, results, shell, tables
from vinejax.report.page.chosen import choose
from vinejax.report.page.curves import curves, phases
from vinejax.report.page.runs import Run, read_runs
from vinejax.tokenizer import Tokenizer

FILE = "report.html"
LIMIT = 15_000_000  # bytes of a page
_RESERVE = 200_000  # of them for tables and what is written around the data
_SCRIPTS = ("dom.js", "curves.js", "steps.js", "viewer.js", "start.js")


def write_page(folders: Sequence[Path], out: Path, tokenizer: Tokenizer | None = None) -> list[Run]:
    """Writes the page of the runs in `folders` to the file `out`, and returns the runs.

    `tokenizer` is that of all runs; without one each run's own is looked for on disk. Raises
    UserError for a folder without a run and for a place that cannot be written to.
    """
    runs = read_runs(folders)
    page = render(runs, tokenizer)
    if out.is_dir():
        raise UserError(f"--out is {out}, a folder: give the name of a file, such as {FILE}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, page.encode())
    except OSError as error:
        raise UserError(f"--out is {out}, which cannot be written ({error})") from error
    return runs


def try_to_write_page(
    folders: Sequence[Path], out: Path, tokenizer: Tokenizer | None = None
) -> None:
    """As `write_page`, but a failure is only a line on standard error: no run ends by it."""
    try:
        write_page(folders, out, tokenizer)
    except Exception as error:
        listed = " ".join(map(str, folders))
        print(
            f"{out} was not written ({type(error).__name__}: {error}); the run is complete, "
            f"`python -m experiments.report {listed}` tries again",
            file=sys.stderr,
        )


def render(runs: Sequence[Run], tokenizer: Tokenizer | None = None) -> str:
    """The HTML of a page of at most `LIMIT` bytes."""
    script = shell.scripts(*_SCRIPTS)
    data = blocks.element("curves", blocks.pack([curves(run) for run in runs]))
    static = {
        "meaning": results.meaning(runs),
        "results": results.results(runs),
        "costs": tables.costs_table(runs),
        "configuration": tables.configuration(runs),
    }
    fixed = (shell.charts(), data, script, *static.values())
    used = sum(len(part.encode()) for part in fixed) + _RESERVE
    room = (LIMIT - used) // len(runs)
    chosen = [choose(run, f"run{i}", room, tokenizer) for i, run in enumerate(runs)]
    described = {
        "runs": [
            {
                "name": run.name,
                "values": run.has_values,
                "phases": phases(run),
                "iterations": found.iterations,
                "notes": found.notes,
            }
            for run, found in zip(runs, chosen, strict=True)
        ]
    }
    body = string.Template((shell.ASSETS / "report.html").read_text("utf-8")).substitute(
        static, notes=tables.notes(note for run in runs for note in run.notes)
    )
    data += "".join(element for found in chosen for element in found.elements)
    return shell.page("report", _title(runs), _subtitle(runs), body, script, described, data)


def _title(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    return f"{runs[0].config.get('name') or 'A run'}: {runs[0].name}"


def _subtitle(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(str((run.config.get("task") or {}).get("name", "?")) for run in runs)
    parts = [f"task {', '.join(names)}"]
    if len(runs) == 1:
        parts.append(tables.state_of(runs[0]))
    written = max((run.lines[-1].get(WRITTEN) or 0 for run in runs if run.lines), default=0)
    if written:
        parts.append(time.strftime("%d %B %Y", time.gmtime(written)))
    return " · ".join(parts)
