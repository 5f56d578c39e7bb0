"""analysis.html: the figures of all analyses in one file that needs no network.

Scripts, styles and the chart library are those of the report's page (`report.page`).
"""

import string
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from vinejax.analysis import charts
from vinejax.analysis.charts import Chart
from vinejax.analysis.quality import as_text
from vinejax.config import Config
from vinejax.files import write_atomic
from vinejax.report.page import shell, tables

Results = Mapping[str, Any]


def write(
    path: Path,
    run: str,
    config: Config,
    rollouts: int,
    result: Results,
    raw: Mapping[int, Results],
) -> None:
    """Writes the page of `result`, as `run.analyse` returns it, and of raw values by checkpoint."""
    write_atomic(path, render(run, config, rollouts, result, raw).encode())


def render(
    run: str, config: Config, rollouts: int, result: Results, raw: Mapping[int, Results]
) -> str:
    """The HTML of the page."""
    own = resources.files("vinejax.analysis") / "assets"
    sections, all_charts = _sections(rollouts, result, raw)
    body = string.Template((own / "analysis.html").read_text("utf-8")).substitute(
        sections="".join(sections)
    )
    script = shell.scripts("dom.js", "curves.js") + (own / "analysis.js").read_text("utf-8")
    title = f"{config.algorithm} on {config.task.name}, seed {config.seed}"
    return shell.page("analysis", title, run, body, script, {"charts": all_charts})


def _sections(
    rollouts: int, result: Results, raw: Mapping[int, Results]
) -> tuple[list[str], list[Chart]]:
    """HTML of the sections, and their charts in order."""
    at_values, at_actions = result["values"], result["actions"]
    parts = [
        (
            "Values",
            f"What predictors say a state is worth, against the mean of {rollouts} fresh rollouts. "
            "Bars are 95 % intervals over problems (bootstrap).",
            charts.of_values(at_values) + charts.of_states(at_values, raw),
            _values_table(at_values),
        ),
        (
            "Best of the next steps",
            "How often a predictor finds the best of up to 5 sampled next steps, over states where "
            "they differ by more than 0.1. Ties count by chance.",
            charts.of_actions(at_actions),
            _actions_table(at_actions),
        ),
        (
            "Noise of the policy gradient",
            "Batches of the same problems are answered anew; every estimator gives the same "
            "trajectories its advantages, raw. Noise is the trace of the covariance of a batch's "
            "gradient, signal the squared norm of the mean. vine K: VinePPO with K rollouts a "
            "state; constant: the reward less a constant. Bars are 95 % intervals (jackknife).",
            charts.of_gradients(result["gradients"]),
            _gradients_table(result["gradients"]),
        ),
        (
            "Accuracy and what it cost",
            "Validation pass@1. KL and training reward are means over the 4 iterations around "
            "a validation.",
            charts.of_curves(result["curves"]),
            "",
        ),
    ]
    sections, found = [], []
    for title, about, own, table in parts:
        if not own:
            continue
        for chart in own:
            chart["id"] = f"chart-{len(found)}"
            found.append(chart)
        sections.append(
            f'<section><h2>{shell.escaped(title)}</h2><p class="muted">{shell.escaped(about)}</p>'
            f'<div class="charts">{"".join(map(_card, own))}</div>{table}</section>'
        )
    return sections, found


def _card(chart: Chart) -> str:
    title, about = shell.escaped(chart["title"]), shell.escaped(chart["about"])
    place = f'<div class="plot" id="{chart["id"]}"></div>'
    return f'<div class="chart"><h3>{title}</h3><p>{about}</p>{place}</div>'


def _values_table(results: Sequence[Results]) -> str:
    """The first and the last checkpoint's, and where there are more those of all, folded."""
    if len(results) < 3:
        return _values_rows(results)
    every = tables.fold(f"All {len(results)} checkpoints", _values_rows(results))
    return _values_rows([results[0], results[-1]]) + every


def _values_rows(results: Sequence[Results]) -> str:
    head = ["checkpoint, predictor", *charts.TITLES.values(), "calibration error"]
    rows = [
        [
            f"{at['iteration']}: {charts.name_of(name)}",
            *(as_text(found[metric]) for metric in charts.TITLES),
            f"{found['calibration']['error']:.3f}",
        ]
        for at in results
        for name, found in at["predictors"].items()
    ]
    return tables.table(head, rows, "scores")


def _actions_table(results: Sequence[Results]) -> str:
    names = list(dict.fromkeys(n for at in results for n in at["predictors"]))
    head = [
        "checkpoint",
        "tried",
        "with alternatives",
        "with spread",
        "chance",
        *map(charts.name_of, names),
    ]
    rows = [
        [
            str(at["iteration"]),
            *(str(at[n]) for n in ("tried", "with_alternatives", "with_spread")),
            "-" if at["chance"] is None else f"{at['chance']:.3f}",
            *(as_text(at["predictors"].get(n)) for n in names),
        ]
        for at in results
    ]
    return tables.table(head, rows, "scores")


def _gradients_table(results: Sequence[Results]) -> str:
    head = [
        "checkpoint, estimator",
        "tokens of a batch",
        "noise / signal",
        "tokens until they are equal",
        "cosine of two halves",
        "noise",
        "signal",
    ]
    rows = [
        [
            f"{at['iteration']}: {charts.estimator_name(name)}",
            f"{found['tokens']:,.0f}",
            as_text(found["noise_to_signal"]),
            as_text(found["tokens_to_signal"], ",.0f"),
            "-" if found["cosine"] is None else f"{found['cosine']:.2f}",
            f"{found['noise']['value']:.3g}",
            f"{found['signal']:.3g}",
        ]
        for at in results
        for name, found in at["estimators"].items()
    ]
    return tables.table(head, rows, "scores")
