"""Accuracy of a policy on held-out problems: pass@1 with both graders, pass@k, majority vote.

pass@1 is the mean grade; where a grade may be a part, full_marks_share is the share with all marks.

python -m experiments.evaluate --run=DIR takes a run's newest policy,
python -m experiments.evaluate --model=PATH --config=NAME a Hugging Face folder or hub id.

--config.evaluation.samples=16 and its like change how. CollegeMath and OlympiadBench, on which the
paper also reports, are not available.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments import cli
from vinejax.config import Config, ConfigError, flatten

# What may be another one than in the run: the rest made the policy, or the problems.
FREE = ("evaluation", "grading", "engine", "task.path", "policy.compute_dtype")


@dataclass(frozen=True)
class EvaluateFlags:
    """Flags of this command beside the configuration."""

    run: Path | None = None  # Directory of the run; evaluation-SPLIT-ITERATION.json goes there.
    iteration: int | None = None  # Of the run: one whose checkpoint is kept; 0 = after SFT.
    best: bool = False  # The run's best iteration on the validation problems.
    model: str | None = None  # Hugging Face folder or hub id, instead of a run.
    split: Literal["test", "validation", "train"] = "test"  # Which problems.
    json: bool = False  # Print the result as one JSON line, last on standard output.


def run(argv: list[str]) -> None:
    """Parse, load the policy, sample and grade; see `EvaluateFlags` for the arguments."""
    about, prog = __doc__ or "", "python -m experiments.evaluate"
    given = cli.given(argv)
    start = run_config(Path(given["run"])) if "run" in given else None
    config, flags = cli.parse(argv, EvaluateFlags(), prog, about, start)
    if (flags.run is None) == (flags.model is None):
        raise ConfigError("give either --run=DIR, or --model=PATH and --config=NAME")
    if flags.best + (flags.iteration is not None) > (flags.run is not None):
        raise ConfigError("--iteration and --best choose a policy of --run=DIR: give one of them")
    cli.use_compile_cache()
    from vinejax import train  # after the cache is set: this import starts JAX

    if flags.run is not None and start is not None:
        check_unchanged(start, config)
        result = train.evaluate_run(flags.run, config, flags.split, flags.iteration, flags.best)
    else:
        result = train.evaluate_model(of_model(config, flags.model), flags.split)
    if flags.json:
        cli.print_json(result)
    else:
        print("\n".join(lines(result)))


def run_config(folder: Path) -> Config:
    """The configuration of a run; UserError if there is none."""
    cli.use_compile_cache()
    from vinejax import train

    return train.read_config(folder)


def check_unchanged(start: Config, config: Config) -> None:
    """ConfigError for a flag that would make it another run."""
    before = dict(flatten(start))
    for name, value in flatten(config):
        is_free = any(name == free or name.startswith(free + ".") for free in FREE)
        if value != before[name] and not is_free:
            raise ConfigError(
                f"{name} is {before[name]!r} in the run: it cannot be changed to {value!r}; "
                f"leave it out ({', '.join(FREE)} may be changed)"
            )


def of_model(config: Config, model: str | None) -> Config:
    """The configuration with `model` as its policy, which is not trained."""
    return dataclasses.replace(
        config,
        policy=dataclasses.replace(config.policy, path=model, revision=None, architecture=None),
        sft=dataclasses.replace(config.sft, path=None, epochs=0),
    )


def lines(result: Mapping[str, Any]) -> list[str]:
    """The result as a short table: shares in percent; full marks where they are not pass@1."""
    from vinejax.report.summary import full_marks

    shown, hidden = [], set() if full_marks(result) is not None else {"full_marks_share"}
    for name, value in result.items():
        if name.endswith(("_low", "_high")) or name in hidden or value is None:
            continue
        if isinstance(value, float):
            value = f"{value:.1f}" if name == "response_tokens" else f"{100 * value:.1f} %"
        if f"{name}_low" in result:
            low, high = result[f"{name}_low"], result[f"{name}_high"]
            value += f"  ({100 * low:.1f} to {100 * high:.1f})"
        shown.append(f"{name:<24} {value}")
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
