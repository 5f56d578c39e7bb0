"""What the policy is, how it was made, on what, and what it scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from vinejax.config import Config
from vinejax.report.card.exported import Exported
from vinejax.report.card.markdown import plain, table
from vinejax.report.card.origin import shown
from vinejax.report.curve import VALIDATION
from vinejax.report.summary import full_marks

CONFIG = "vinejax_config.json"
_METHODS = {
    "vineppo": "VinePPO: PPO whose state values are means of fresh rollouts",
    "ppo": "PPO with a critic",
    "grpo": "GRPO",
    "rloo": "RLOO",
    "restem": "RestEM: imitation of responses that were right",
    "dpo_positive": "DPO-Positive on pairs of right and wrong responses",
    "sft": "supervised fine-tuning only",
}
TASKS = {
    "ledger": "`ledger`, made by vinejax itself: left-to-right arithmetic modulo 10, one digit a "
    "fact. The demonstrations state some of the facts wrongly on purpose.",
    "gsm8k": "GSM8K (Cobbe et al. 2021): grade school word problems in English.",
    "math": "MATH (Hendrycks et al. 2021): competition problems in English.",
}


def about(exported: Exported) -> str:
    """What the model is, and how far its training had come."""
    config, base, planned = exported.config, exported.base, exported.run.planned
    size = f"{exported.parameters:,}"
    start = f"further training of {plain(base.name)}" if base else "training from random weights"
    text = (
        f"A causal language model of {size} parameters that solves problems of one task, "
        f"{plain(exported.task_name)}. It comes from {start} with {_method(config)}."
    )
    if planned:
        text += f"\n\nThe weights are those after iteration {exported.iteration} of {planned}."
    if exported.iteration < planned:
        text += (
            " **The run was not finished when they were exported**: they are a state on the way, "
            "not its result."
        )
    return text


def _method(config: Config) -> str:
    return _METHODS.get(config.algorithm, f"a method of its own, {plain(config.algorithm)}")


def how(exported: Exported) -> str:
    """The main fields of the configuration, and where all of them are."""
    config = exported.config
    sampling, update = config.sampling, config.update
    rows = [
        ("method", _method(config)),
        ("start", plain(exported.base.name) if exported.base else "random weights"),
        ("supervised fine-tuning", _fine_tuning(config)),
    ]
    if exported.run.planned:
        rows += [
            ("iterations", f"{exported.iteration} of {exported.run.planned}"),
            ("episodes an iteration", f"{config.prompts} problems x {config.samples} responses"),
            ("learning rate", f"{update.learning_rate:g}"),
            ("epochs, minibatch", f"{update.epochs}, {update.minibatch} sequences"),
            ("KL coefficient", f"{update.kl:g}"),
            ("sampling", _sampling(sampling.temperature, sampling.top_p, sampling.max_new_tokens)),
        ]
    if config.algorithm == "vineppo":
        values = config.values
        rows.append(("values", f"{values.k} rollouts from each state, states: {values.states}"))
    rows += [("seed", str(config.seed)), ("software", _software(exported.run.environment))]
    shown_rows = [[name, value] for name, value in rows]
    return f"{table(['', ''], shown_rows)}\n\nEvery field is in [{CONFIG}]({CONFIG})."


def _fine_tuning(config: Config) -> str:
    sft = config.sft
    if sft.path is not None or sft.epochs == 0:
        return "none in this run"
    return f"{sft.epochs:g} epochs, {sft.batch} sequences a step"


def _sampling(temperature: float, top_p: float, most: int) -> str:
    return f"temperature {temperature:g}, top-p {top_p:g}, at most {most} new tokens"


def _software(environment: Mapping[str, Any]) -> str:
    """Versions and the commit, as far as the run wrote them down."""
    packages, git = (environment.get(name) or {} for name in ("packages", "git"))
    parts = [f"vinejax {packages.get('vinejax', '')}".strip()]
    if git.get("commit"):
        changed = " with changes" if git.get("dirty") else ""
        parts[0] += f" at commit {str(git['commit'])[:12]}{changed}"
    if packages.get("jax"):
        parts.append(f"jax {packages['jax']}")
    return plain(", ".join(parts))


def scores(exported: Exported) -> str:
    """pass@1 before and after, by both graders where there are two, or what is known instead."""
    run, config, evaluation = exported.run, exported.config, exported.config.evaluation
    how = _sampling(evaluation.temperature, evaluation.top_p, evaluation.max_new_tokens)
    cut = {"graded": "graded on their text", "wrong": "wrong"}[evaluation.truncated]
    settings = f"{how}. Responses that the budget ends are {cut}."
    if run.summary and run.summary.get("iterations") == exported.iteration:
        rows = _tested(exported)
        sizes = f"{run.summary.get('problems')} test problems x {run.summary.get('samples')}"
        return f"{rows}\n\n{_meaning(exported)} {sizes} responses, {settings}"
    validated = [
        line
        for line in run.lines
        if line.get(VALIDATION) is not None and line["iteration"] <= exported.iteration
    ]
    text = "These weights were not tested."
    if not validated:
        return f"{text} Nothing is known of their accuracy."
    line = validated[-1]
    ends = [line.get(f"{VALIDATION}_{end}") for end in ("low", "high")]
    measured = _with_full(_share(line[VALIDATION], ends), full_marks(line, "validation/"))
    by = f" by the `{config.grading.grader}` grader" if exported.task.has_two_graders else ""
    return (
        f"{text} On validation the policy of iteration {line['iteration']} had pass@1 {measured}"
        f"{by} (mean grade, 95 % interval over problems; at most {evaluation.problems} problems x "
        f"{evaluation.samples} responses, {settings})"
    )


def _meaning(exported: Exported) -> str:
    """What the numbers in the table are."""
    text = "pass@1 is the mean grade of a response"
    names = ("sft", "final", "best")
    if all(full_marks(exported.run.summary, f"{name}_") is None for name in names):
        text += ", the share that is right where grades are 0 or 1"
    else:
        text += "; some got a part of the marks, so the share with full marks is lower"
    return f"{text}, with 95 % intervals over problems."


def _tested(exported: Exported) -> str:
    summary, own = exported.run.summary, exported.config.grading.grader
    other = {"authors": "strict", "strict": "authors"}[own]
    best = summary.get("best_iteration")
    policies = [("final", f"**these weights**, after iteration {exported.iteration}")]
    if exported.run.planned == 0:
        policies = [("final", "**these weights**")]
    else:
        policies.insert(0, ("sft", "before reinforcement learning"))
        if best and best != exported.iteration:
            policies.append(("best", f"best on validation, iteration {best}: not these weights"))
    full = {name: full_marks(summary, f"{name}_") for name, _ in policies}
    rows = [
        [
            title,
            _with_full(
                _share(summary.get(f"{name}_pass_at_1"), summary.get(f"{name}_interval")),
                full[name],
            ),
            _share(
                summary.get(f"{name}_{other}_pass_at_1"), summary.get(f"{name}_{other}_interval")
            ),
        ]
        for name, title in policies
    ]
    if not exported.task.has_two_graders:
        return table(["", "pass@1"], [row[:2] for row in rows])
    reward = ", the reward" if exported.run.planned else ""
    return table(["", f"`{own}` grader{reward}", f"`{other}` grader"], rows)


def _with_full(text: str, share: float | None) -> str:
    return text if share is None else f"{text}; full marks {100 * share:.1f} %"


def _share(value: float | None, interval: Sequence[float | None] | None) -> str:
    if value is None:
        return "unknown"
    if not interval or None in interval:
        return f"{100 * value:.1f} %"
    low, high = (100 * (end or 0.0) for end in interval)
    return f"{100 * value:.1f} % ({low:.1f} to {high:.1f})"


def data(exported: Exported) -> str:
    """The task, and where its problems came from."""
    task, own = exported.config.task, exported.task_name
    place = "" if own == task.name else f" (`task.name` is {plain(task.name)})"
    text = TASKS.get(task.name, f"{plain(own)}, a task of the run's own{place}.")
    if task.path is not None:
        text += f" The problems came from files in a folder {plain(shown(task.path))}."
    else:
        hub = getattr(task.options, "hub", None)
        text += f" The problems came from the hub's {plain(shown(hub))}." if hub else ""
    return f"{text} Data has licences and terms of its own, which are not stated here."
