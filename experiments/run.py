"""Train: supervised fine-tuning, VinePPO, evaluation. `python -m experiments.run --config=tiny`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import cli
from vinejax import tasks
from vinejax.config import Config, every_n_tokens


@dataclass(frozen=True)
class RunFlags:
    """Flags of this command beside the configuration."""

    out: Path | None = None  # Run folder; default runs/NAME-ALGORITHM-seedN.
    resume: bool = False  # Go on with the run in that folder, or start it if there is none.
    dry_run: bool = False  # Check the configuration, print the plan, load nothing.
    json: bool = False  # Print the summary as one JSON line, last on standard output.


def default_out(config: Config) -> Path:
    """runs/NAME-ALGORITHM-seedN, relative to the working directory."""
    return Path("runs") / f"{config.name}-{config.algorithm}-seed{config.seed}"


def plan(config: Config, out: Path) -> dict[str, Any]:
    """What a run would do: counts and limits that follow from the configuration alone."""
    trains = config.algorithm != "sft"
    return {
        "config": config.name,
        "algorithm": config.algorithm,
        "task": config.task.name,
        "policy": config.sft.path or config.policy.path or "random initialisation",
        "seed": config.seed,
        "out": str(out),
        "sft_epochs": 0 if config.sft.path else config.sft.epochs,
        "iterations": config.iterations if trains else 0,
        "prompts_per_iteration": config.prompts,
        "episodes_per_iteration": config.episodes,
        "updates_per_iteration": config.update.epochs * config.episodes // config.update.minibatch,
        "updates": config.updates if trains else 0,
        "rollouts_per_state": config.values.k,
        "tokens_between_states": every_n_tokens(config.values.states) or "one reasoning step",
        "prompt_tokens_at_most": config.task.max_prompt_tokens,
        "new_tokens_at_most": config.sampling.max_new_tokens,
        "context_trajectory_rollout_evaluation": [
            config.sampling.context,
            config.values.context,
            config.evaluation.context,
        ],
        "training_sequence_at_most": config.update.max_sequence,
    }


def run(argv: list[str]) -> None:
    """Parse, check, and train; see `RunFlags` and `vinejax.config` for the arguments."""
    about = __doc__ or ""
    config, flags = cli.parse(argv, RunFlags(), "python -m experiments.run", about)
    config.validate(tasks.names())
    tasks.get(config.task.name, **config.task.arguments())  # refuses options that it cannot take
    out = flags.out or default_out(config)
    if flags.dry_run:
        summary = plan(config, out)
        if not flags.json:
            print("\n".join(f"{name:<40} {value}" for name, value in summary.items()))
    else:
        cli.use_compile_cache()
        from vinejax import train  # after the cache is set: this import starts JAX

        summary = train.run(config, out, resume=flags.resume)
    if flags.json:
        cli.print_json(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
