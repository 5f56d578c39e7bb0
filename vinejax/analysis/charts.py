"""What the figures show, as plain records that the page's script draws."""

from collections.abc import Mapping, Sequence
from typing import Any

Chart = dict[str, Any]
Results = Mapping[str, Any]

TITLES = {
    "within_0.05": "within 0.05",
    "mae": "mean absolute error",
    "bias": "bias",
    "correlation": "correlation",
    "explained_variance": "explained variance",
    "error_slope": "error, change a step",
}
_NAMES = {
    "critic": "critic",
    "group_mean": "mean of the prompt's samples (GRPO)",
    "leave_one_out": "mean of its other samples (RLOO)",
    "constant": "constant: the mean truth",
}
_ESTIMATORS = {
    "critic": "PPO",
    "group": "GRPO",
    "leave_one_out": "RLOO",
}
_COSTS = {
    "episodes": "episodes",
    "updates": "updates",
    "tokens_sampled": "sampled tokens, those of values included",
    "seconds": "seconds without validation",
}


def name_of(predictor: str) -> str:
    """What people call it."""
    kind, _, k = predictor.partition("_")
    if kind == "mc":
        return f"{k} rollout" if k == "1" else f"{k} rollouts"
    return _NAMES.get(predictor, predictor)


def estimator_name(estimator: str) -> str:
    """What people call an estimator of the gradient; short, as they stand side by side."""
    kind, _, k = estimator.partition("_")
    return f"vine {k}" if kind == "vine" else _ESTIMATORS.get(estimator, estimator)


def of_values(results: Sequence[Results]) -> list[Chart]:
    """Metrics of all predictors over the checkpoints."""
    metrics = ("within_0.05", "mae", "explained_variance", "correlation")
    about = {
        "within_0.05": "share of states; the paper's accuracy",
        "mae": "of the prediction",
        "explained_variance": "1 is perfect, 0 as good as a constant; from -1 up",
        "correlation": "of predicted and true values",
    }
    found = []
    for metric in metrics if results else ():
        traces = []
        for i, name in enumerate(_predictors(results)):
            own = [(at["iteration"], at["predictors"].get(name)) for at in results]
            kept = [(x, f[metric]) for x, f in own if f and f[metric]["value"] is not None]
            if kept:
                traces.append(_trace(name_of(name), i, [x for x, _ in kept], [f for _, f in kept]))
        chart = _chart(TITLES[metric].capitalize(), about[metric], "iteration", "", traces)
        if metric == "explained_variance":  # an untrained critic's would flatten all others
            chart["y_range"] = [-1.05, 1.05]
        found.append(chart)
    return found


def of_states(results: Sequence[Results], raw: Mapping[int, Results]) -> list[Chart]:
    """Error by step, predicted against true, and calibration, at the first and last checkpoint."""
    found = []
    for at in [r for r in results if r["iteration"] in raw and r["states"]]:
        where, order = f"at iteration {at['iteration']}", _predictors(results)
        steps, reliable = [], []
        for name, own in at["predictors"].items():
            i = order.index(name)
            by_step = own["by_step"]
            steps.append(_trace(name_of(name), i, [s["step"] for s in by_step], by_step))
            if name != "constant":
                bins = own["calibration"]["bins"]
                points = [{"value": b["truth"]} for b in bins]
                reliable.append(_trace(name_of(name), i, [b["predicted"] for b in bins], points))
        columns = raw[at["iteration"]]
        points = [
            _trace(
                name_of(name),
                order.index(name),
                x,
                [{"value": t} for t in columns["truth"]],
                mode="markers",
            )
            for name, x in columns["predicted"].items()
        ]
        found += [
            _chart(f"Error by step {where}", "mean absolute error; 0 is the prompt",
                   "step", "", steps),
            _chart(f"Predicted and true {where}", "one point a state; on the line is right",
                   "predicted", "true value", [*points, _diagonal()]),
            _chart(f"Calibration {where}", "mean truth of what is predicted alike, in tenths",
                   "predicted", "mean true value", [*reliable, _diagonal()]),
        ]  # fmt: skip
    return found


def of_actions(results: Sequence[Results]) -> list[Chart]:
    """Shares of best next steps found, by predictor."""
    found = []
    for at in [r for r in results if r["predictors"]]:
        own = {n: f for n, f in at["predictors"].items() if n != "constant"}
        names = [name_of(n) for n in own]
        chance = [{"value": at["chance"]}] * len(names)
        traces = [
            _trace("found", 0, names, list(own.values()), mode="markers"),
            _trace("chance", None, names, chance, mode="lines"),
        ]
        about = f"{at['with_spread']} states; dotted: chance"
        title = f"Best next step found at iteration {at['iteration']}"
        chart = _chart(title, about, "", "share of states", traces)
        found.append(chart | {"categories": True, "y_range": [0, 1.02]})
    return found


def of_gradients(results: Sequence[Results]) -> list[Chart]:
    """Noise of the estimators at equal samples and at equal tokens, at each checkpoint."""
    titles = {
        "noise_to_signal": ("Noise at equal samples", "noise / signal of one batch's gradient"),
        "tokens_to_signal": (
            "Noise at equal tokens",
            "sampled tokens until noise and signal are equal, rollouts included",
        ),
    }
    found = []
    for number, (title, about) in titles.items() if results else ():
        traces = []
        for i, at in enumerate(results):
            own = {n: f[number] for n, f in at["estimators"].items()}
            names = [estimator_name(n) for n in own]
            where = f"iteration {at['iteration']}"
            traces.append(_trace(where, i, names, list(own.values()), mode="markers"))
        chart = _chart(title, f"{about}; less is better", "", "", traces)
        found.append(chart | {"categories": True, "log": True})
    return found


def of_curves(curves: Results) -> list[Chart]:
    """pass@1 against costs and KL, and against the reward on the training problems."""
    points = curves["points"]
    if not points:
        return []

    def against(x: str, title: str, about: str, label: str) -> Chart:
        kept = [p for p in points if p[x] is not None]
        numbers = [{"value": p["pass_at_1"], "low": p["low"], "high": p["high"]} for p in kept]
        trace = _trace("validation", 0, [p[x] for p in kept], numbers)
        trace["text"] = [f"iteration {p['iteration']}" for p in kept]
        return _chart(title, about, label, "pass@1", [trace])

    costs = [against(n, f"pass@1 and {n.replace('_', ' ')}", "", t) for n, t in _COSTS.items()]
    kl = against("kl_k1", "pass@1 and KL to the start", "up and left is better", "KL, nats a token")
    slope = curves["slope"]
    about = "no slope" if slope is None else f"slope {slope:.2f}: 1 is full generalisation"
    general = against("train_reward", "Validation and training", about, "mean training reward")
    return [*costs, kl, general]


def _predictors(results: Sequence[Results]) -> list[str]:
    return list(dict.fromkeys(name for at in results for name in at["predictors"]))


def _diagonal() -> Chart:
    return _trace("equal", None, [0, 1], [{"value": 0}, {"value": 1}], mode="lines")


def _trace(
    name: str,
    series: int | None,
    x: Sequence[Any],
    numbers: Sequence[Results],
    mode: str = "lines+markers",
) -> Chart:
    """`series` numbers the colour; None is a dotted line of reference."""
    trace = {"name": name, "series": series, "mode": mode, "x": list(x)}
    trace["y"] = [n["value"] for n in numbers]
    if any(n.get("low") is not None for n in numbers):
        trace |= {end: [n.get(end) for n in numbers] for end in ("low", "high")}
    return trace


def _chart(title: str, about: str, x: str, y: str, traces: list[Chart]) -> Chart:
    return {"title": title, "about": about, "x": x, "y": y, "traces": traces}
