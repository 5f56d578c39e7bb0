"""The parts of the page that are tables and nothing else: seconds by phase, configurations.

Everything that comes from a run goes through `escaped`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vinejax.report.page.curves import phases
from vinejax.report.page.runs import Run, flat
from vinejax.report.page.shell import escaped

COUNTS = (
    ("tokens_sampled", "tokens sampled"),
    ("tokens_sampled_values", "of them rollouts for values"),
    ("tokens_scored", "tokens scored"),
    ("tokens_trained", "tokens trained on"),
)


def costs_table(runs: Sequence[Run]) -> str:
    """Wall seconds, CPU-seconds and tokens: by phase of one run, by run of several."""
    found = [phases(run) for run in runs]
    names = list(dict.fromkeys(n for f in found for part in f.values() for n in part))
    counts = [run.costs for run in runs]
    kinds = [(key, title) for key, title in COUNTS if any(c.get(key) for c in counts)]
    if len(runs) == 1:
        rows = [[name, *_phase(found[0], name)] for name in names]
        total = {kind: sum(part.values()) for kind, part in found[0].items()}
        rows.append(["all", _seconds(total["wall"]), "", _seconds(total["cpu"])])
        tokens = [[title, count(counts[0].get(key))] for key, title in kinds]
        shown = table(["phase", "seconds", "share", "CPU-seconds"], rows if names else [])
        return shown + table(["tokens", ""], tokens)
    shown = ""
    for kind, title in (("wall", "wall seconds"), ("cpu", "CPU-seconds")):
        rows = [
            [run.name, *(_seconds(f[kind].get(n)) for n in names), _seconds(sum(f[kind].values()))]
            for run, f in zip(runs, found, strict=True)
        ]
        shown += table([title, *names, "all"], rows)
    rows = [
        [run.name, *(count(c.get(key)) for key, _ in kinds)]
        for run, c in zip(runs, counts, strict=True)
    ]
    return shown + table(["tokens", *(title for _, title in kinds)], rows)


def configuration(runs: Sequence[Run]) -> str:
    """What differs between runs, then all fields, and where the runs were made."""
    configs = [flat(run.config) for run in runs]
    several = len(runs) > 1
    head = ["field", *(run.name if several else "value" for run in runs)]
    rows = _columns(configs)
    parts = []
    if several:
        differing = [row for row in rows if len(set(row[1:])) > 1]
        parts.append("<h3>What differs</h3>")
        same = "<p>Nothing: the configurations are equal.</p>"
        parts.append(table(head, differing, "fields") if differing else same)
    parts.append(fold("All fields", table(head, rows, "fields")))
    made = _columns([flat(run.environment) for run in runs])
    if made:
        parts.append(fold("Where this was made", table(head, made, "fields")))
    return "".join(parts)


def _columns(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each name in any of the records: the name, and its value in each."""
    names = dict.fromkeys(name for record in records for name in record)
    return [[name, *(_value(record.get(name, "-")) for record in records)] for name in names]


def notes(lines: Iterable[str]) -> str:
    """Sentences that say what the page lacks."""
    return "".join(f'<p class="note">{escaped(line)}</p>' for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """A table whose first column names the rows; wide ones scroll by themselves."""
    if not rows:
        return ""
    cells = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escaped(first)}</th>'
        + "".join(f"<td>{escaped(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    top = f"<thead><tr>{cells}</tr></thead>" if any(head) else ""
    return scrolling(f'<table class="{kind}">{top}<tbody>{body}</tbody></table>')


def state_of(run: Run) -> str:
    """How far the run is, in words."""
    if run.finished:
        return f"finished, {run.done} iterations" if run.planned else "finished"
    if not run.lines:
        return "no iteration has finished yet"
    return f"not finished: {run.done} of {run.planned} iterations"


def scrolling(inside: str) -> str:
    """HTML that scrolls by itself where it is too wide."""
    return f'<div class="scroll" tabindex="0">{inside}</div>'


def _phase(found: Mapping[str, Mapping[str, float]], name: str) -> list[str]:
    wall, cpu = found["wall"].get(name), found["cpu"].get(name)
    total = sum(found["wall"].values())
    share = f"{100 * wall / total:.0f} %" if wall is not None and total else "-"
    return [_seconds(wall), share, _seconds(cpu)]


def fold(title: str, body: str) -> str:
    """What is shown when its title is chosen; nothing where there is no body."""
    return f"<details><summary>{escaped(title)}</summary>{body}</details>" if body else ""


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f}"


def count(number: float | None) -> str:
    """With commas, or - for what is not known."""
    return "-" if number is None else f"{number:,.0f}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
