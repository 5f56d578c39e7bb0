"""Where the authors' code does something that a reader would not guess: which variant a run takes.

Nineteen places. Most have a field with both variants; the rest have one variant here, for a reason
that is given. `choices` states what a configuration takes, `with_preset` sets it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from vinejax.config.data import get
from vinejax.config.errors import ConfigError, nearest
from vinejax.config.fields import Config

PRESETS = ("authors", "clean")


@dataclass(frozen=True)
class Choice:
    """One place: what either side does, and the field that chooses or the reason that none does."""

    name: str
    authors: str
    clean: str
    field: str | None = None  # dotted name
    values: tuple[Any, Any] = (None, None)  # the field's, for authors and clean
    task: str | None = None  # the only task that it concerns
    algorithms: tuple[str, ...] | None = None  # the only methods that it concerns
    here: str = ""  # without a field: what is done, and why

    def value(self, preset: str) -> Any:
        """What the preset sets the field to."""
        return self.values[PRESETS.index(preset)]


CHOICES = (
    Choice(
        "splitter_failures",
        "the trajectory is lost",
        "the whole response is one step",
        here="clean: no trajectory is dropped; `step_failures` counts them",
    ),
    Choice(
        "formula_cuts",
        "steps end inside formulas, too",
        "never inside a formula, as in the paper",
        "task.steps",
        ("authors", "paper"),
        task="math",
    ),
    Choice(
        "lost_trajectories",
        "all are doubled, shuffled and cut to size",
        "the rest is trained on",
        here="clean: no trajectory is lost, so none is doubled",
    ),
    Choice(
        "rollout_budget",
        "1024 tokens from the state on",
        "1024 less the tokens before the state",
        "values.budget",
        ("state", "remaining"),
        algorithms=("vineppo",),
    ),
    Choice(
        "seeds",
        "one seed for all requests of a rank; rollouts repeat the next iteration's",
        "one key for each iteration, phase, prompt and sample",
        here="clean: shared seeds would make samples depend on the device count",
    ),
    Choice(
        "token_ids",
        "the text is tokenised again",
        "the sampled ids are kept",
        here="clean: the loss is about the tokens that were sampled",
    ),
    Choice(
        "kl_scale",
        "sum over a sequence's tokens, mean over sequences",
        "the same",
        here="authors: the policy term is a mean over tokens, so `update.kl` weighs more",
    ),
    Choice(
        "whitening_scope",
        "a micro-batch over all GPUs",
        "the minibatch, whatever the device count",
        here="clean: equal to the authors' wherever their GPUs hold a minibatch at once",
    ),
    Choice(
        "warmup",
        "logarithmic, as DeepSpeed's WarmupDecayLR",
        "linear",
        "update.warmup",
        ("logarithmic", "linear"),
    ),
    Choice(
        "evaluation_truncation",
        "graded on its text",
        "wrong",
        "evaluation.truncated",
        ("graded", "wrong"),
    ),
    Choice(
        "grader",
        "DeepSeekMath's, lenient",
        "the same, for comparison; the strict one is reported beside it",
        "grading.grader",
        ("authors", "authors"),
    ),
    Choice(
        "gold_commas",
        "kept: such problems cannot be solved",
        "removed on both sides",
        "task.options.gold_commas",
        ("authors", "clean"),
        task="gsm8k",
    ),
    Choice(
        "step_cap",
        "estimates for the first 25 steps",
        "for all",
        "values.max_step",
        (25, None),
        task="gsm8k",
        algorithms=("vineppo",),
    ),
    Choice(
        "sequence_cap",
        "2048 or 2499 tokens, BOS and EOS included",
        "the same",
        here="authors: `update.max_sequence`; sampling stops there instead of cutting afterwards",
    ),
    Choice(
        "eos_after_stop_string",
        "appended and trained, though never sampled",
        "none (one behind a loss mask would change nothing)",
        "sampling.append_eos",
        ("trained", "never"),
    ),
    Choice(
        "eos_of_unfinished",
        "dropped from a response that ended without its answer mark",
        "kept, as sampled",
        "sampling.unfinished_eos",
        ("dropped", "kept"),
    ),
    Choice(
        "truncation_reward",
        "0 (they tried less, without a gain)",
        "the same",
        "sampling.truncation_reward",
        (0.0, 0.0),
    ),
    Choice(
        "shared_values",
        "equal prefixes share one estimate",
        "the same (without, estimates are independent and cost more)",
        "values.deduplicate",
        (True, True),
        algorithms=("vineppo",),
    ),
    Choice(
        "whitening",
        "on",
        "the same",
        "advantages.whiten",
        (True, True),
        algorithms=("vineppo", "ppo"),
    ),
)


def choices(config: Config) -> dict[str, str]:
    """For every choice, by name, the variant that `config` takes, and how that is set."""
    return {choice.name: _state(choice, config) for choice in CHOICES}


def with_preset(config: Config, preset: str) -> Config:
    """`config` with every field that is a choice set as "authors" or "clean" have it.

    Choices that belong to another task or method stay. Raises ConfigError for another name.
    """
    if preset not in PRESETS:
        raise ConfigError(f"choices is {preset!r}; {nearest(preset, PRESETS)}")
    for choice in CHOICES:
        if choice.field is not None and _concerns(choice, config):
            config = _put(config, choice.field, choice.value(preset))
    return config


def markdown() -> str:
    """The choices as a table for README.md."""
    rows = ["| choice | authors | clean | here |", "|---|---|---|---|"]
    for choice in CHOICES:
        cells = [choice.name.replace("_", " ")]
        for preset in PRESETS:
            value = "" if choice.field is None else f" (`{choice.value(preset)}`)"
            cells.append(f"{getattr(choice, preset)}{value}")
        task = "" if choice.task is None else f", {choice.task} only"
        cells.append(f"`{choice.field}`{task}" if choice.field is not None else choice.here)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _state(choice: Choice, config: Config) -> str:
    if choice.field is None:
        return choice.here
    if choice.task not in (None, config.task.name):
        return f"not of task {config.task.name}"
    if not _concerns(choice, config):
        return f"not of algorithm {config.algorithm}"
    value = get(config, choice.field)
    taken = [preset for preset in PRESETS if choice.value(preset) == value]
    return f"{' and '.join(taken) or 'other'}: {choice.field}={value}"


def _concerns(choice: Choice, config: Config) -> bool:
    methods = choice.algorithms
    return choice.task in (None, config.task.name) and (
        methods is None or config.algorithm in methods
    )


def _put(record: Any, name: str, value: Any) -> Any:
    """`record` with another value in the field of a dotted name."""
    first, _, rest = name.partition(".")
    if rest:
        value = _put(getattr(record, first), rest, value)
    return dataclasses.replace(record, **{first: value})
