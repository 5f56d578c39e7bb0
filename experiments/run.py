"""Train: supervised fine-tuning, VinePPO or another method, evaluation.

python -m experiments.run --config=tiny --config.algorithm=grpo starts a run,
python -m experiments.run --out=DIR --resume goes on with one, as its config.json has it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments import cli, dry_run
from vinejax import tasks
from vinejax.config import Config, ConfigError, flatten


@dataclass(frozen=True)
class RunFlags:
    """Flags of this command beside the configuration."""

    out: Path | None = None  # Run folder; default runs/NAME-ALGORITHM-seedN.
    # Variant of every named choice, where no other flag sets it; None = the configuration's own.
    choices: Literal["authors", "clean"] | None = None
    start: Path | None = None  # Folder of a finished run: its SFT is taken, bit for bit.
    # Go on with the run in that folder, or start it if there is none. Without --config: with the
    # configuration of the run.
    resume: bool = False
    # Check configuration, data, tokenizer and grader; print the plan; no weights.
    dry_run: bool = False
    profile: int = 0  # Iteration of which a JAX profile is written to OUT/profile; 0: none.
    json: bool = False  # Print the summary as one JSON line, last on standard output.
    coordinator: str | None = None  # HOST:PORT of process 0, where several processes are started.
    process_id: int | None = None  # Number of this process, from 0; goes with --coordinator.
    processes: int | None = None  # How many there are; goes with --coordinator.
    # Let JAX find the processes of a cluster. Those of Slurm and of a TPU slice on GKE are noticed
    # without it; on TPU VMs that gcloud made it is needed.
    cluster: bool = False


def default_out(config: Config) -> Path:
    """runs/NAME-ALGORITHM-seedN, relative to the working directory."""
    algorithm = config.algorithm.replace(":", ".")
    return Path("runs") / f"{config.name}-{algorithm}-seed{config.seed}"


def of_folder(argv: Sequence[str]) -> Config | None:
    """What the run in --out=DIR began with, where --resume is given and --config is not.

    Raises ConfigError if there is no run.
    """
    given = cli.given(argv)
    if "config" in given or "out" not in given or given.get("resume", "false").lower() == "false":
        return None
    out = Path(given["out"])
    if not (out / "config.json").exists():
        raise ConfigError(
            f"--out is {out}, which holds no run to go on with: give --config=NAME to start one"
        )
    cli.use_compile_cache()
    from vinejax import train

    return train.read_config(out)


def taken_from(out: Path, own: Config, config: Config) -> str:
    """A line that says where the configuration is from, and what the flags change in it."""
    before = dict(flatten(own))
    changed = [
        f"{name}: {before.get(name)!r} -> {value!r}"
        for name, value in flatten(config)
        if before.get(name) != value
    ]
    but = f", changed by flags: {', '.join(changed)}" if changed else ""
    return f"configuration: {own.name} as in {out / 'config.json'}{but}"


def run(argv: list[str]) -> None:
    """Parse, check, and train; see `RunFlags` and `vinejax.config` for the arguments."""
    about, own = __doc__ or "", of_folder(argv)
    config, flags = cli.parse(argv, RunFlags(), "python -m experiments.run", about, own)
    config.validate(tasks.names())
    task = tasks.get(config.task.name, **config.task.arguments())
    out = flags.out or default_out(config)
    last = 0 if config.algorithm == "sft" else config.iterations
    if not 0 <= flags.profile <= last:
        raise ConfigError(
            f"--profile is {flags.profile}: give an iteration, 1 to {last}, or 0 for none"
        )
    source = None if own is None else taken_from(out, own, config)
    if flags.dry_run:
        if source is not None:
            print(source, file=sys.stderr)
        summary, text = dry_run.report(config, task, out)
        if not flags.json:
            print(text)
    else:
        cli.use_compile_cache()
        from vinejax import processes, train  # after the cache is set: this import starts JAX

        processes.connect(flags.coordinator, flags.process_id, flags.processes, flags.cluster)
        if source is not None and processes.is_first():
            print(source, file=sys.stderr)
        with processes.failing_fast():
            summary = train.run(
                config, out, resume=flags.resume, start=flags.start, profile=flags.profile
            )
        if not processes.is_first():
            return
    if flags.json:
        cli.print_json(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
