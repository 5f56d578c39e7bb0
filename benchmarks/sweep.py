"""Learning rates for every method, from the same SFT, chosen on validation.

    python -m benchmarks.sweep --config=tiny --algorithms=vineppo,ppo,grpo --seeds=3 --out=DIR
                               [--config.iterations=20] [--json]

Rates are multiples of the configuration's update.learning_rate. For ppo they are tried with the
first of the critic's rates and epochs, which are multiples of the policy's; then, at the best rate,
all critic's rates with all its epochs. The best of a method is the setting with the highest best
validation accuracy, mean over seeds; test accuracy is shown and not looked at. DIR/sweep.json and
DIR/sweep.md are written anew after every run, and the same command goes on where it was stopped or
killed. `experiments.compare` takes the choice: --tuned=DIR/sweep.json.
"""

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import cli, series
from experiments.compare import METHODS
from experiments.series import Trial
from vinejax.config import Config, ConfigError, get
from vinejax.files import write_atomic, write_json
from vinejax.report.comparison import markdown, over_seeds

RATE, CRITIC_RATE, CRITIC_EPOCHS = "update.learning_rate", "critic.learning_rate", "critic.epochs"


@dataclass(frozen=True)
class SweepFlags:
    """Flags of this command beside the configuration."""

    out: Path | None = None  # Folder of all runs and of the table.
    algorithms: str = METHODS  # Methods, with commas in between.
    seeds: int = 3  # How many: config.seed and those that follow it.
    rates: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)  # Times update.learning_rate.
    critic_rates: tuple[float, ...] = (5.0, 1.0, 10.0)  # Of ppo: times the policy's rate.
    critic_epochs: tuple[int, ...] = (1, 4)  # Of ppo: times update.epochs.
    json: bool = False  # Print the result as one JSON line, last on standard output.


def rates(config: Config, flags: SweepFlags) -> list[Config]:
    """The rates that are tried of the method that `config` has."""
    found = [factor * config.update.learning_rate for factor in flags.rates]
    tried = [replace(config, update=replace(config.update, learning_rate=r)) for r in found]
    if config.algorithm != "ppo":
        return tried
    return [critics(one, flags)[0] for one in tried]


def critics(config: Config, flags: SweepFlags) -> list[Config]:
    """The rates and epochs of the critic that are tried at the policy's rate of `config`."""
    return [
        replace(
            config,
            critic=replace(
                config.critic,
                learning_rate=factor * config.update.learning_rate,
                epochs=times * config.update.epochs,
            ),
        )
        for factor, times in itertools.product(flags.critic_rates, flags.critic_epochs)
    ]


def fields(config: Config) -> dict[str, Any]:
    """The swept fields of a setting."""
    names = (RATE, CRITIC_RATE, CRITIC_EPOCHS) if config.algorithm == "ppo" else (RATE,)
    return {name: get(config, name) for name in names}


def trial_of(config: Config, root: Path) -> Trial:
    """Where a setting runs: METHOD-lr0.0002-seed0, of ppo METHOD-lr0.0002-0.001x2-seed0."""
    rate, *critic = (f"{value:g}" for value in fields(config).values())
    name = f"{config.algorithm.replace(':', '.')}-lr{rate}"
    if critic:
        name += f"-{'x'.join(critic)}"
    return Trial(config, root / f"{name}-seed{config.seed}")


def collect(trials: Sequence[Trial]) -> dict[str, Any]:
    """All settings, in order, with what their runs came to; and the best one of each method.

    Only settings with the most seeds can be the best one: while a sweep goes on, some have fewer.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for trial in trials:
        summary = json.loads((trial.out / "summary.json").read_text())
        swept, method = fields(trial.config), trial.config.algorithm
        row = rows.setdefault(
            (method, *swept.values()),
            {"algorithm": method, "fields": swept, "seeds": []}
            | {name: [] for name in ("best_validation", "final_test", "best_test", "cpu_seconds")},
        )
        phases = summary["seconds_of_cpu_by_phase"]
        row["seeds"].append(trial.config.seed)
        row["best_validation"].append(summary["best_validation_pass_at_1"])
        row["final_test"].append(summary["final_pass_at_1"])
        row["best_test"].append(summary["best_pass_at_1"])
        row["cpu_seconds"].append(phases["iteration"] - phases.get("validation", 0.0))
    methods = dict.fromkeys(row["algorithm"] for row in rows.values())
    groups = {m: [row for row in rows.values() if row["algorithm"] == m] for m in methods}
    return {
        "settings": list(rows.values()),
        "chosen": {
            method: max(_complete(group), key=lambda row: np.mean(row["best_validation"]))["fields"]
            for method, group in groups.items()
        },
    }


def _complete(group: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    most = max(len(row["seeds"]) for row in group)
    return [row for row in group if len(row["seeds"]) == most]


def table(result: dict[str, Any]) -> str:
    """The sweep as Markdown; * is the choice."""
    head = ["method", "rate", "critic's rate", "its epochs", "best validation", "by seed"]
    head += ["test at the end", "CPU-s", "chosen"]
    rows = []
    for row in result["settings"]:
        validation = over_seeds(row["best_validation"], 0.0, 1.0)
        swept, interval = row["fields"], validation["interval"]
        text = f"{100 * validation['mean']:.1f}"
        if interval is not None:
            text += f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
        rows.append(
            [row["algorithm"]]
            + [f"{swept[name]:g}" if name in swept else "" for name in (RATE, CRITIC_RATE)]
            + [str(swept.get(CRITIC_EPOCHS, "")), text]
            + [" ".join(f"{100 * x:.1f}" for x in row["best_validation"])]
            + [f"{100 * np.mean(row['final_test']):.1f}", f"{np.mean(row['cpu_seconds']):.0f}"]
            + ["*" if result["chosen"].get(row["algorithm"]) == swept else ""]
        )
    return markdown(head, rows)


def run(argv: list[str]) -> None:
    """Parse, check everything, train what is missing; see `SweepFlags`."""
    prog, about = "python -m benchmarks.sweep", __doc__ or ""
    series.refuse_method(argv)
    config, flags = cli.parse(argv, SweepFlags(), prog, about)
    if flags.out is None:
        raise ConfigError("--out is missing: give the folder of all runs")
    root, seeds = flags.out, series.seeds_from(config.seed, flags.seeds)
    for name in ("rates", "critic_rates", "critic_epochs"):
        if not getattr(flags, name) or min(getattr(flags, name)) <= 0:
            raise ConfigError(f"--{name} is {getattr(flags, name)}: give numbers above 0")

    def of(method: str) -> Config:
        return cli.parse([*argv, f"--config.algorithm={method}"], SweepFlags(), prog, about)[0]

    methods = series.methods_in(flags.algorithms)
    starts = series.starts(of("sft"), seeds, root)
    trials = _trials([one for m in methods for one in rates(of(m), flags)], seeds, root)
    series.check(starts, trials)
    finished: list[Trial] = []

    def done(trial: Trial) -> None:
        finished.append(trial)
        result = collect(finished)
        write_json(root / "sweep.json", result)
        write_atomic(root / "sweep.md", (table(result) + "\n").encode())

    series.run(starts, trials, done)
    if "ppo" in methods:
        best = collect(finished)["chosen"]["ppo"][RATE]
        ppo = of("ppo")
        ppo = replace(ppo, update=replace(ppo.update, learning_rate=best))
        # The first one was among the rates.
        series.run(starts, _trials(critics(ppo, flags)[1:], seeds, root), done)
    result = collect(finished)
    if flags.json:
        cli.print_json(result)
    else:
        print(table(result))


def _trials(settings: Sequence[Config], seeds: Sequence[int], root: Path) -> list[Trial]:
    return [trial_of(replace(one, seed=seed), root) for seed in seeds for one in settings]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
