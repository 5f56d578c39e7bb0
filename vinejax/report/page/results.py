"""The first section of the page: what the policies of each run score, and what that cost.

Everything that comes from a run goes through `escaped`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vinejax.report.curve import VALIDATION
from vinejax.report.page.runs import Run
from vinejax.report.page.shell import escaped
from vinejax.report.page.tables import COUNTS, count, fold, scrolling, state_of, table
from vinejax.report.summary import duration, full_marks

_WIDE = ' class="wide"'  # the column of bars, which paper has no room for
_TIMES = (
    "Time is that of the iterations, with compiling and validation. SFT, which a run may have "
    "taken from another one (--start), and tests are not in it."
)
POLICIES = (("sft", "After SFT"), ("final", "At the end"), ("best", "Best iteration"))


class Score(NamedTuple):
    """pass@1 of a policy on held-out problems."""

    title: str
    value: float
    interval: Any
    full: float | None  # share with full marks, where that is another number


def results(runs: Sequence[Run]) -> str:
    """Headline numbers: cards of one run, a table of several; then all numbers of each."""
    if len(runs) == 1:
        return _cards(runs[0]) + fold("All numbers", _details(runs[0]))
    every = (f"<h3>{escaped(run.name)}</h3>{_details(run)}" for run in runs)
    return _comparison(runs) + fold("All numbers", "".join(every))


def meaning(runs: Sequence[Run]) -> str:
    """What pass@1 is on this page: a share of right answers, or a mean with partial grades."""
    text = (
        "pass@1 on held-out problems, with its 95\u00a0% interval over problems: the mean grade of "
        "a sampled answer"
    )
    if any(score.full is not None for run in runs for score in _scores(run)):
        text += ", where some have a part of the marks; pass@k counts full marks only"
    else:
        text += ", which is the share that is right where grades are 0 or 1"
    return escaped(f"{text}.")


def _cards(run: Run) -> str:
    cards = "".join(
        f'<div class="card"><h3>{escaped(title)}</h3>'
        f'<p class="big">{_percent(value)}</p>{_gauge(value, interval)}'
        f'<p class="small">{_interval(interval)}{_full(full, " · ")}</p></div>'
        for title, value, interval, full in _scores(run)
    )
    facts = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>"
        for name, value in _facts(run)
    )
    return f'<div class="cards">{cards}</div><dl class="facts">{facts}</dl>'


def _scores(run: Run) -> list[Score]:
    """Those of the policies tested; of a run on its way the validation."""
    found = []
    for name, title in POLICIES if run.planned else POLICIES[:1]:
        value = run.summary.get(f"{name}_pass_at_1")
        if value is not None:
            if name == "best":
                title = f"Best iteration: {run.summary.get('best_iteration')}"
            interval = run.summary.get(f"{name}_interval")
            found.append(Score(title, value, interval, full_marks(run.summary, f"{name}_")))
    if not found:
        lines = (run.start, *run.lines)
        validated = [line for line in lines if line.get(VALIDATION) is not None]
        if validated:
            line = validated[-1]
            ends = [line.get(f"{VALIDATION}_{end}") for end in ("low", "high")]
            title = f"Validation after iteration {line.get('iteration', 0)}"
            full = full_marks(line, "validation/")
            found.append(Score(title, line[VALIDATION], None if None in ends else ends, full))
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
    facts += [(title, count(counts[key])) for key, title in COUNTS if counts.get(key)]
    whole, learning = summary.get("seconds"), counts["seconds_by_phase"].get("iteration")
    if learning:
        facts.append(("time of the iterations", duration(learning)))
    if whole:
        facts.append(("time with SFT and tests" if learning else "time", duration(whole)))
    if run.endpoint.get("value_error") is not None:
        facts.append(("mean error of the values", f"{run.endpoint['value_error']:.3f}"))
    return facts


def _comparison(runs: Sequence[Run]) -> str:
    head = ["run", "after SFT", "at the end", "", "best (iteration)", "episodes", "tokens", "time"]
    rows = []
    for i, run in enumerate(runs):
        scores = {score.title.partition(":")[0]: score for score in _scores(run)}
        sft, final, best = (scores.get(title) for _, title in POLICIES)
        end = final or next(iter(scores.values()), None)
        counts = run.costs
        seconds = counts["seconds_by_phase"].get("iteration", 0.0)
        unfinished = "" if run.finished else f"<br><small>{escaped(state_of(run))}</small>"
        key = f'<span class="key" style="--c: var(--series-{i % 8})"></span>'
        which = run.summary.get("best_iteration", "")
        rows.append(
            f'<tr><th scope="row">{key}{escaped(run.name)}{unfinished}</th>'
            f"<td>{_score(sft)}</td><td>{_score(end)}</td>"
            f'<td class="wide">{_gauge(end.value, end.interval) if end else ""}</td>'
            f"<td>{_score(best)}{f' <small>at {escaped(which)}</small>' if best else ''}</td>"
            f"<td>{run.done * run.episodes:,}</td><td>{count(counts['tokens_sampled'])}</td>"
            f"<td>{duration(seconds)}</td></tr>"
        )
    cells = "".join(f'<th scope="col"{"" if name else _WIDE}>{escaped(name)}</th>' for name in head)
    top = f"<thead><tr>{cells}</tr></thead>"
    shown = scrolling(f'<table class="scores">{top}<tbody>{"".join(rows)}</tbody></table>')
    return f'{shown}<p class="small">{_TIMES}</p>'


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
    if not any(full_marks(run.summary, f"{prefix}_") is not None for prefix in prefixes):
        measures.pop("full_marks_share", None)  # pass@1 once more
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
            _percent(found.get("pass_at_1")) + _full(full_marks(found), ", "),
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


def _score(score: Score | None) -> str:
    if score is None:
        return "-"
    full = _full(score.full, "<br>")
    return f"{_percent(score.value)}<br><small>{_interval(score.interval)}{full}</small>"


def _full(share: float | None, before: str) -> str:
    """The share with full marks, where pass@1 holds partial grades."""
    return "" if share is None else f"{before}full marks: {_percent(share)}"


def _gauge(value: float, interval: Any) -> str:
    """A bar from 0 to 100 % with the interval on it; the numbers stand beside it."""
    low, high = interval if interval and None not in interval else (value, value)
    at = f"--v: {100 * value:.1f}%; --low: {100 * low:.1f}%; --high: {100 * high:.1f}%"
    return f'<div class="gauge" style="{at}" aria-hidden="true"><i></i><b></b></div>'


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _interval(interval: Any) -> str:
    if not interval or None in interval:
        return ""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
