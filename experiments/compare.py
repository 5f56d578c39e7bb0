"""Methods on equal terms: one SFT a seed, equal episodes, the same sampler and evaluation.

python -m experiments.compare --config=tiny --algorithms=vineppo,grpo --seeds=3 [--out=DIR]

Every method starts from the same parameters, bit for bit, in OUT/ALGORITHM-seedN. The same command
with the same --out goes on where it was stopped or killed. Flags of the configuration are for all
methods. The result is in OUT/compare.json and OUT/compare.md, and OUT/report.html shows all runs.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import cli, series
from experiments.series import Trial
from vinejax.config import Config, ConfigError, UserError
from vinejax.files import write_atomic, write_json

METHODS = "vineppo,ppo,grpo,rloo,restem,dpo_positive"


@dataclass(frozen=True)
class CompareFlags:
    """Flags of this command beside the configuration."""

    algorithms: str = METHODS  # Methods, with commas in between.
    seeds: int = 3  # How many: config.seed and those that follow it.
    out: Path | None = None  # Folder of all runs and the result; default runs/NAME-compare.
    tuned: Path | None = None  # sweep.json of benchmarks.sweep: methods take what it has chosen.
    states: int = 200  # States at which a method's values are compared with the truth; 0 = none.
    rollouts: int = 256  # Rollouts that give the truth of a state.
    json: bool = False  # Print the result as one JSON line, last on standard output.


def run(argv: list[str]) -> None:
    """Parse, check everything, train what is missing, compare; see `CompareFlags`."""
    prog, about = "python -m experiments.compare", __doc__ or ""
    series.refuse_method(argv)
    config, flags = cli.parse(argv, CompareFlags(), prog, about)
    for name, least in (("states", 0), ("rollouts", 1)):
        if getattr(flags, name) < least:
            raise ConfigError(f"--{name} is {getattr(flags, name)}: give {least} or more")
    methods = series.methods_in(flags.algorithms)
    seeds = series.seeds_from(config.seed, flags.seeds)
    root = flags.out or Path("runs") / f"{config.name}-compare"

    tuned = {} if flags.tuned is None else chosen(flags.tuned, methods)

    def of(method: str) -> Config:
        own = [f"--config.{name}={value}" for name, value in tuned.get(method, {}).items()]
        words = [*argv, f"--config.algorithm={method}", *own]
        return cli.parse(words, CompareFlags(), prog, about)[0]

    starts = series.starts(of("sft"), seeds, root)
    trials = [
        Trial(replace(of(method), seed=seed), root / f"{method.replace(':', '.')}-seed{seed}")
        for seed in seeds
        for method in methods
    ]
    series.check(starts, trials)
    compare(starts, trials, root, flags)


def chosen(path: Path, methods: Sequence[str]) -> dict[str, dict[str, float]]:
    """The fields that a sweep has chosen, by method. Raises UserError if it lacks a method."""
    try:
        found = json.loads(path.read_text())["chosen"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--tuned is {path}, which cannot be read ({error!r}): give the sweep.json of a sweep"
        ) from error
    missing = [name for name in methods if name not in found]
    if missing:
        raise UserError(f"--tuned is {path}, which has no {missing[0]}: sweep it, or leave it out")
    return found


def compare(
    starts: dict[int, Trial], trials: Sequence[Trial], root: Path, flags: CompareFlags
) -> None:
    """Runs all that is missing, then writes and prints the result."""
    from vinejax.report import comparison, page

    outcomes = []

    def done(trial: Trial) -> None:
        start = starts[trial.config.seed]
        outcomes.append(series.outcome(start, trial, flags.states, flags.rollouts))

    series.run(starts, trials, done)
    result = comparison.compare(outcomes)
    text = comparison.tables(result)
    write_json(root / "compare.json", result)
    write_atomic(root / "compare.md", (text + "\n").encode())
    page.try_to_write_page([trial.out for trial in trials], root / page.FILE)
    if flags.json:
        cli.print_json(result)
    else:
        print(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
