"""Where better credit pays: `ledger` with longer chains, by method, K, and way to measure values.

    python -m benchmarks.where_credit_pays --config=tiny --lengths 8 16 --seeds=3 --out=DIR [--json]

For every length of the chain the demonstrations are so sloppy that they are right as often as those
of `tiny` are (0.8^8 = 17 %): what grows is the number of steps that an outcome could be due to;
--sloppy sets the share of sloppy facts instead. One SFT a length and seed, from which all arms
start; equal episodes. The other flags of the configuration (prompts, samples, task.options.resets,
...) are for all arms, --tuned=sweep.json gives methods their own rates. Times are to the best
validation accuracy of GRPO and of PPO, seed by seed. DIR/length-N/compare.json and compare.md are
written anew after every seed, and the same command goes on where it was stopped or killed.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import cli, series
from experiments.compare import chosen
from experiments.series import Trial
from vinejax.config import Config, ConfigError, LedgerOptions
from vinejax.files import write_atomic, write_json
from vinejax.report import comparison

# What an arm changes, as flags of the configuration; the first is the method.
POOLED = ("values.pool=true", "values.budget=remaining")
ARMS: dict[str, tuple[str, ...]] = {
    "grpo": ("algorithm=grpo",),
    "ppo": ("algorithm=ppo",),
    "K = 1": ("algorithm=vineppo", "values.k=1"),
    "K = 3": ("algorithm=vineppo", "values.k=3"),
    "K = 9": ("algorithm=vineppo", "values.k=9"),
    "K = 3, pooled": ("algorithm=vineppo", "values.k=3", *POOLED),
    "pooled, 2 or more": ("algorithm=vineppo", "values.k=3", "values.min_samples=2", *POOLED),
}
RIGHT = 0.8**8  # share of right demonstrations


@dataclass(frozen=True)
class Flags:
    """Flags of this command beside the configuration."""

    out: Path | None = None  # Folder of all runs and results.
    lengths: tuple[int, ...] = (6, 8, 12, 16)  # Facts of a problem.
    sloppy: float | None = None  # Share of sloppy facts; None = demonstrations as right as tiny's.
    arms: tuple[str, ...] = tuple(ARMS)
    seeds: int = 3  # How many: config.seed and those that follow it.
    tuned: Path | None = None  # sweep.json of benchmarks.sweep: methods take what it has chosen.
    json: bool = False  # Print the results as one JSON line, last on standard output.


def of_length(config: Config, length: int, sloppy: float | None = None) -> Config:
    """`config` for chains of `length` facts: the task, and room for its texts.

    A prompt has 2 n + 3 tokens and a response 7 n + 2.
    """
    assert isinstance(config.task.options, LedgerOptions)
    if sloppy is None:
        sloppy = round((1 - RIGHT ** (1 / length)) / config.task.options.wrong, 4)
    options = replace(config.task.options, length=length, sloppy=sloppy)
    prompt, response = 2 * length + 8, 7 * length + 8
    context = 16 * math.ceil((prompt + response) / 16)
    room = {"max_new_tokens": response, "context": context}
    return replace(
        config,
        task=replace(config.task, options=options, max_prompt_tokens=prompt),
        sampling=replace(config.sampling, **room),
        evaluation=replace(config.evaluation, **room),
        values=replace(config.values, context=context),
        update=replace(config.update, max_sequence=context),
        sft=replace(config.sft, max_length=context),
    )


def run(argv: list[str]) -> None:
    """Parse, check everything, train what is missing; see `Flags`."""
    prog, about = "python -m benchmarks.where_credit_pays", __doc__ or ""
    series.refuse_method(argv)
    config, flags = cli.parse(argv, Flags(), prog, about)
    if flags.out is None:
        raise ConfigError("--out is missing: give the folder of all runs")
    if not isinstance(config.task.options, LedgerOptions):
        raise ConfigError(f"task.name is {config.task.name}: this is about the task ledger")
    for arm in flags.arms:
        if arm not in ARMS:
            raise ConfigError(f"--arms has {arm!r}: there are {', '.join(map(repr, ARMS))}")
    seeds = series.seeds_from(config.seed, flags.seeds)
    methods = [ARMS[arm][0].removeprefix("algorithm=") for arm in flags.arms]
    tuned = {} if flags.tuned is None else chosen(flags.tuned, methods)

    def of(words: Sequence[str]) -> Config:
        method = words[0].removeprefix("algorithm=")
        own = [f"{name}={value}" for name, value in tuned.get(method, {}).items()]
        more = [f"--config.{word}" for word in (*words, *own)]
        return cli.parse([*argv, *more], Flags(), prog, about)[0]

    results = {}
    for length in flags.lengths:
        root = flags.out / f"length-{length}"
        sft, *trained = (
            of_length(of(words), length, flags.sloppy)
            for words in (("algorithm=sft",), *(ARMS[arm] for arm in flags.arms))
        )
        starts = series.starts(sft, seeds, root)
        arms = dict(zip(flags.arms, trained, strict=True))
        results[length] = measure(starts, arms, seeds, root)
        print(f"\nchains of {length}\n\n{comparison.tables(results[length])}", file=sys.stderr)
    if flags.json:
        cli.print_json(results)


def measure(
    starts: dict[int, Trial], arms: dict[str, Config], seeds: Sequence[int], root: Path
) -> dict[str, Any]:
    """Trains all arms with all seeds, and compares them."""
    arm_of = {
        Trial(replace(config, seed=seed), root / f"{_folder(arm)}-seed{seed}"): arm
        for seed in seeds
        for arm, config in arms.items()
    }
    series.check(starts, list(arm_of))
    outcomes: list[comparison.Outcome] = []

    def done(trial: Trial) -> None:
        found = series.outcome(starts[trial.config.seed], trial, states=0, rollouts=1)
        outcomes.append(replace(found, arm=arm_of[trial]))
        if len(outcomes) % len(arms) == 0:  # all arms have the same seeds
            result = comparison.compare(outcomes)
            write_json(root / "compare.json", result)
            write_atomic(root / "compare.md", (comparison.tables(result) + "\n").encode())

    series.run(starts, list(arm_of), done)
    return comparison.compare(outcomes)


def _folder(arm: str) -> str:
    return arm.replace(" = ", "").replace(", ", "-").replace(" ", "-")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
