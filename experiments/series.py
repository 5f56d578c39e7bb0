"""Many runs one after the other, each from the SFT of its seed: what comparisons are made of.

A series can be stopped or killed at any moment: the same command goes on, and finished runs are
only read. SFT runs are in ROOT/sft-seedN.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import cli
from vinejax import tasks
from vinejax.config import AdvantagesConfig, Config, ConfigError, flatten, get
from vinejax.report import read_metrics
from vinejax.report.comparison import Outcome

# What runs on equal terms have in common; the episodes are iterations x prompts x samples.
SHARED = {
    *("iterations", "prompts", "samples", "policy", "task", "sampling", "sft", "evaluation"),
    "grading",
}


@dataclass(frozen=True)
class Trial:
    """A run to do, and where."""

    config: Config
    out: Path


def seeds_from(first: int, count: int) -> list[int]:
    """`count` seeds from `first` on. Raises ConfigError if there is none."""
    if count < 1:
        raise ConfigError(f"--seeds is {count}: it must be at least 1")
    return list(range(first, first + count))


def methods_in(text: str) -> list[str]:
    """The methods in a list with commas. Raises ConfigError for what cannot be compared."""
    methods = [word.strip() for word in text.split(",")]
    if "sft" in methods:
        raise ConfigError("--algorithms has sft, the start that all share: leave it out")
    if not all(methods):
        raise ConfigError(f"--algorithms is {text!r}: give names with commas in between")
    twice = [name for i, name in enumerate(methods) if name in methods[:i]]
    if twice:
        raise ConfigError(f"--algorithms has {twice[0]} twice: name each method once")
    return methods


def refuse_method(argv: Sequence[str]) -> None:
    """Raises ConfigError for a flag that names a single method."""
    if "config.algorithm" in cli.given(argv):
        raise ConfigError("--config.algorithm is set for each run: name methods by --algorithms")


def starts(config: Config, seeds: Sequence[int], root: Path) -> dict[int, Trial]:
    """The SFT run of every seed; `config` is the configuration with the method sft."""
    config = replace(config, advantages=AdvantagesConfig())  # which may be those of one method
    return {seed: Trial(replace(config, seed=seed), root / f"sft-seed{seed}") for seed in seeds}


def check(starts: Mapping[int, Trial], trials: Sequence[Trial]) -> None:
    """Raises ConfigError or UserError unless all can run, on equal terms; writes nothing.

    Seeds may differ, and what belongs to a method.
    """
    cli.use_compile_cache()
    from vinejax.train import algorithms, folder

    everything = [*trials, *starts.values()]
    first = trials[0].config
    fields = {name: value for name, value in flatten(first) if name.partition(".")[0] in SHARED}
    for trial in everything:
        config = trial.config.validate(tasks.names(), algorithms.names())
        algorithms.get(config.algorithm)
        for name, value in fields.items():
            if get(config, name) != value:
                raise ConfigError(
                    f"{name} is {get(config, name)!r} for {config.algorithm}, but {value!r} for "
                    f"{first.algorithm}: set it to the same for all, --config.{name}=VALUE"
                )
    for trial in everything:
        folder.check(trial.out, trial.config, resume=True)


def run(
    starts: Mapping[int, Trial], trials: Sequence[Trial], done: Callable[[Trial], None]
) -> None:
    """All SFT runs, then all trials, each followed by `done`; raises Preempted as a run does."""
    import jax

    from vinejax import train
    from vinejax.train import folder

    everything = [*starts.values(), *trials]
    for number, trial in enumerate(everything, 1):
        print(f"run {number} of {len(everything)}: {trial.out}", file=sys.stderr, flush=True)
        jax.clear_caches()  # so that no run gains from what an earlier one has traced
        config, start = trial.config, starts[trial.config.seed]
        takes = trial is not start and folder.fine_tunes(config)
        train.run(config, trial.out, resume=True, start=start.out if takes else None)
        if trial is not start:
            done(trial)


def outcome(start: Trial, trial: Trial, states: int, rollouts: int) -> Outcome:
    """What the finished run of a trial came to; measures its last policy, unless that was done."""
    from vinejax import train

    # The SFT run has validated the start, on the same problems and randomness.
    of_start = json.loads((start.out / "summary.json").read_text())
    return Outcome(
        trial.config,
        json.loads((trial.out / "summary.json").read_text()),
        read_metrics(trial.out),
        train.measure_endpoint(trial.out, states, rollouts),
        of_start["best_validation_pass_at_1"],
    )
