"""The parts of the page that are plain HTML: results, seconds by phase, configurations.

Everything that comes from a run goes through `escaped`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vinejax.report.curve import VALIDATION
from vinejax.report.page.curves import phases
from vinejax.report.page.runs import Run, flat
from vinejax.report.page.shell import escaped
from vinejax.report.summary import duration

POLICIES = (("sft", "After SFT"), ("final", "At the end"), ("best", "Best iteration"))
_COUNTS = (
    ("tokens_sampled", "tokens sampled"),
    ("tokens_sampled_values", "of them rollouts for values"),
    ("tokens_scored", "tokens scored"),
    ("tokens_trained", "tokens trained on"),
)


def results(runs: Sequence[Run]) -> str:
    """Headline numbers: cards of one run, a table of several; then all numbers of each."""
    if len(runs) == 1:
        return _cards(runs[0]) + _fold("All numbers", _details(runs[0]))
    every = (f"<h3>{escaped(run.name)}</h3>{_details(run)}" for run in runs)
    return _comparison(runs) + _fold("All numbers", "".join(every))


def costs_table(runs: Sequence[Run]) -> str:
    """Wall seconds, CPU-seconds and tokens: by phase of one run, by run of several."""
    found = [phases(run) for run in runs]
    names = list(dict.fromkeys(n for f in found for part in f.values() for n in part))
    counts = [run.costs for run in runs]
    kinds = [(key, title) for key, title in _COUNTS if any(c.get(key) for c in counts)]
    if len(runs) == 1:
        rows = [[name, *_phase(found[0], name)] for name in names]
        total = {kind: sum(part.values()) for kind, part in found[0].items()}
        rows.append(["all", _seconds(total["wall"]), "", _seconds(total["cpu"])])
        tokens = [[title, _count(counts[0].get(key))] for key, title in kinds]
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
        [run.name, *(_count(c.get(key)) for key, _ in kinds)]
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
    parts.append(_fold("All fields", table(head, rows, "fields")))
    made = _columns([flat(run.environment) for run in runs])
    if made:
        parts.append(_fold("Where this was made", table(head, made, "fields")))
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
    return _scrolling(f'<table class="{kind}">{top}<tbody>{body}</tbody></table>')


def state_of(run: Run) -> str:
    """How far the run is, in words."""
    if run.finished:
        return f"finished, {run.done} iterations" if run.planned else "finished"
    if not run.lines:
        return "no iteration has finished yet"
    return f"not finished: {run.done} of {run.planned} iterations"


def _cards(run: Run) -> str:
    cards = "".join(
        f'<div class="card"><h3>{escaped(title)}</h3>'
        f'<p class="big">{_percent(value)}</p>{_gauge(value, interval)}'
        f'<p class="small">{_interval(interval)}</p></div>'
        for title, value, interval in _scores(run)
    )
    facts = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>"
        for name, value in _facts(run)
    )
    return f'<div class="cards">{cards}</div><dl class="facts">{facts}</dl>'


def _scores(run: Run) -> list[tuple[str, float, Any]]:
    """Title, share and interval of the policies tested; of a run on its way the validation."""
    found = []
    for name, title in POLICIES if run.planned else POLICIES[:1]:
        value = run.summary.get(f"{name}_pass_at_1")
        if value is not None:
            if name == "best":
                title = f"Best iteration: {run.summary.get('best_iteration')}"
            found.append((title, value, run.summary.get(f"{name}_interval")))
    if not found:
        validated = [line for line in run.lines if line.get(VALIDATION) is not None]
        if validated:
            line = validated[-1]
            ends = [line.get(f"{VALIDATION}_{end}") for end in ("low", "high")]
            title = f"Validation after iteration {line['iteration']}"
            found.append((title, line[VALIDATION], None if None in ends else ends))
    return found


def _facts(run: Run) -> list[tuple[str, str]]:
    summary, counts = run.summary, run.costs
    facts = []
    if summary.get("problems"):
        tested = f"{summary['problems']:,} × {summary.get('samples', '?')} samples"
        facts.append(("test problems", tested))
    if run.planned:
        facts.append(("iterations", f"{run.done:,} of {run.planned:,}"))
        facts.append(("episodes", f"{run.done * run.episodes:,}"))
    facts += [(title, _count(counts[key])) for key, title in _COUNTS if counts.get(key)]
    seconds = summary.get("seconds") or counts["seconds_by_phase"].get("iteration")
    if seconds:
        facts.append(("time", duration(seconds)))
    if run.endpoint.get("value_error") is not None:
        facts.append(("mean error of the values", f"{run.endpoint['value_error']:.3f}"))
    return facts


def _comparison(runs: Sequence[Run]) -> str:
    head = ["run", "after SFT", "at the end", "", "best (iteration)", "episodes", "tokens", "time"]
    rows = []
    for i, run in enumerate(runs):
        scores = {title.partition(":")[0]: (v, interval) for title, v, interval in _scores(run)}
        sft, final, best = (scores.get(title) for _, title in POLICIES)
        end = final or next(iter(scores.values()), None)
        counts = run.costs
        seconds = run.summary.get("seconds") or counts["seconds_by_phase"].get("iteration", 0.0)
        unfinished = "" if run.finished else f"<br><small>{escaped(state_of(run))}</small>"
        key = f'<span class="key" style="--c: var(--series-{i % 8})"></span>'
        which = run.summary.get("best_iteration", "")
        rows.append(
            f'<tr><th scope="row">{key}{escaped(run.name)}{unfinished}</th>'
            f"<td>{_score(sft)}</td><td>{_score(end)}</td>"
            f'<td class="wide">{_gauge(*end) if end else ""}</td>'
            f"<td>{_score(best)}{f' <small>at {escaped(which)}</small>' if best else ''}</td>"
            f"<td>{run.done * run.episodes:,}</td><td>{_count(counts['tokens_sampled'])}</td>"
            f"<td>{duration(seconds)}</td></tr>"
        )
    cells = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    top = f"<thead><tr>{cells}</tr></thead>"
    return _scrolling(f'<table class="scores">{top}<tbody>{"".join(rows)}</tbody></table>')


def _scrolling(inside: str) -> str:
    return f'<div class="scroll" tabindex="0">{inside}</div>'


def _details(run: Run) -> str:
    """Every number of the summary by policy, and evaluations that were made later."""
    prefixes = [name for name, _ in POLICIES if f"{name}_pass_at_1" in run.summary]
    measures = dict.fromkeys(
        key.partition("_")[2]
        for key in run.summary
        if key.partition("_")[0] in prefixes
        and not key.endswith(("_interval", "best_iteration"))
        and "validation" not in key
    )
    rows = [
        [
            name.replace("_", " ")
            .replace("pass at ", "pass@")
            .replace("majority at ", "majority@"),
            *(_measure(name, run.summary, prefix) for prefix in prefixes),
        ]
        for name in measures
    ]
    titles = dict(POLICIES)
    parts = table(["", *(titles[p] for p in prefixes)], rows)
    later = [
        [
            f"{found.get('split', '?')}, iteration {found.get('iteration', '?')}",
            _percent(found.get("pass_at_1")),
            _interval([found.get("pass_at_1_low"), found.get("pass_at_1_high")]),
            f"{found.get('problems', '?')} × {found.get('samples', '?')}",
        ]
        for found in run.evaluations
    ]
    parts += table(["evaluated later", "pass@1", "95 % interval", "problems × samples"], later)
    if run.endpoint:
        rows = [
            [name, f"{v:.4g}"] for name, v in run.endpoint.items() if isinstance(v, (int, float))
        ]
        parts += table(["the last policy, on episodes of its own", ""], rows)
    return parts


def _measure(name: str, summary: Mapping[str, Any], prefix: str) -> str:
    value = summary.get(f"{prefix}_{name}")
    if not isinstance(value, (int, float)):
        return "-"
    if name.endswith("tokens"):
        return f"{value:,.1f}"
    interval = summary.get(f"{prefix}_{name.replace('pass_at_1', 'interval')}")
    if name.endswith("pass_at_1") and _interval(interval):
        return f"{_percent(value)} ({_interval(interval)})"
    return _percent(value)


def _phase(found: Mapping[str, Mapping[str, float]], name: str) -> list[str]:
    wall, cpu = found["wall"].get(name), found["cpu"].get(name)
    total = sum(found["wall"].values())
    share = f"{100 * wall / total:.0f} %" if wall is not None and total else "-"
    return [_seconds(wall), share, _seconds(cpu)]


def _score(score: tuple[float, Any] | None) -> str:
    if score is None:
        return "-"
    value, interval = score
    return f"{_percent(value)}<br><small>{_interval(interval)}</small>"


def _gauge(value: float, interval: Any) -> str:
    """A bar from 0 to 100 % with the interval on it; the numbers stand beside it."""
    low, high = interval if interval and None not in interval else (value, value)
    at = f"--v: {100 * value:.1f}%; --low: {100 * low:.1f}%; --high: {100 * high:.1f}%"
    return f'<div class="gauge" style="{at}" aria-hidden="true"><i></i><b></b></div>'


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{escaped(title)}</summary>{body}</details>" if body else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _interval(interval: Any) -> str:
    if not interval or None in interval:
        return ""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f}"


def _count(count: float | None) -> str:
    return "-" if count is None else f"{count:,.0f}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
