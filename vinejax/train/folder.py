"""The run folder: what may be put there, what it holds, and whether a run may go on in it."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from vinejax import processes, report
from vinejax.checkpoint import whole
from vinejax.config import (
    Config,
    ConfigError,
    Preempted,
    StorageError,
    UserError,
    choices,
    differences,
    fixed_length,
    from_dict,
    to_dict,
)
from vinejax.files import FULL, refusal
from vinejax.journal import Journal, cut_torn_line

LONGEST_NAME = 255  # bytes, in most file systems


def check(out: Path, config: Config, resume: bool) -> bool:
    """Whether `out` holds a run of this configuration to go on with. Writes nothing.

    Raises UserError for a folder with something else in it, with a run that `resume` was not given
    for, or with a run of another configuration (the fields that differ are named).
    """
    check_place(out)
    # A process that was killed in `write` leaves the file that it had not yet renamed.
    if not out.exists() or all(file.name == ".config.json.tmp" for file in out.iterdir()):
        return False
    path = out / "config.json"
    if not path.exists():
        raise UserError(f"--out is {out}, which is not empty and holds no run: give another folder")
    if not resume:
        raise UserError(
            f"--out is {out}, which holds a run: add --resume to go on with it, "
            "or give another folder"
        )
    old = _read(path)
    changed = differences(old, config)
    why = fixed_length(old)
    if why is not None and [line.partition(":")[0] for line in changed] == ["iterations"]:
        start = f" and --start={out}, which takes its SFT once it is over" * fine_tunes(old)
        raise UserError(
            f"--out is {out}, which holds a run of another length ({changed[0]}). It cannot be "
            f"resumed as that: {why}; for a run of the new length give another --out{start}"
        )
    if changed:
        listed = "\n  ".join(changed)
        raise UserError(
            f"--out is {out}, which holds a run of another configuration:\n  {listed}\n"
            "give another --out, or the run's own values (experiments.run takes those with "
            "--resume and without --config)"
        )
    return True


def check_place(out: Path) -> None:
    """Raises UserError where no folder `out` can be made or written to."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.lstat(out)
    except (OSError, ValueError) as error:  # too long a name, a circle of links
        raise UserError(f"--out is {str(out)[:300]}: {error}; give another folder") from error
    longest = max(map(os.fsencode, out.parts), key=len, default=b"")
    if len(longest) > LONGEST_NAME:
        raise UserError(
            f"--out is {str(out)[:300]}, with a name of {len(longest)} bytes, more than "
            f"{LONGEST_NAME}: give another folder"
        )
    if out.is_symlink() and not out.exists():
        raise UserError(f"--out is {out}, a link to nothing: remove it, or give another folder")
    place = next(path for path in (out, *out.absolute().parents) if os.path.exists(path))
    if not place.is_dir():
        raise UserError(f"--out is {out}, but {place} is a file: give another folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"--out is {out}, but {place} cannot be written to: give another folder")


def write(out: Path, config: Config) -> None:
    """Makes the folder and puts the configuration, its named choices and the environment in it."""
    out.mkdir(parents=True, exist_ok=True)
    report.write_json(out / "config.json", to_dict(config))
    report.write_json(out / "choices.json", choices(config))
    report.write_json(out / "environment.json", report.environment())


def read_config(out: Path) -> Config:
    """The configuration of the run in `out`. Raises UserError if there is none."""
    path = out / "config.json"
    if not path.exists():
        raise UserError(f"--run is {out}, which holds no run (no config.json): give a run folder")
    return _read(path)


def _read(path: Path) -> Config:
    try:
        return from_dict(json.loads(path.read_text()))
    except (ValueError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}): give another folder") from error


def finished(out: Path, config: Config) -> dict | None:
    """The summary of a run that has done all its iterations."""
    path = out / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text())
    return summary if summary["iterations"] >= iterations(config) else None


def check_same(config: Config) -> None:
    """Raises ConfigError unless all processes of the run have the same configuration."""
    for number, other in enumerate(processes.tell(to_dict(config))):
        changed = differences(from_dict(other), config)
        if changed:
            raise ConfigError(
                f"process {number} has another configuration than process {processes.index()}: "
                f"{changed[0]}; start all processes with the same flags"
            )


def check_shared(out: Path) -> None:
    """Raises UserError unless all processes see the folder that process 0 has made."""
    for number, sees in enumerate(processes.tell((out / "config.json").exists())):
        if not sees:
            raise UserError(
                f"--out is {out}, where process {number} does not see what process 0 has written: "
                "several processes need a folder on a file system that all of them share"
            )


@contextlib.contextmanager
def storing(out: Path) -> Iterator[None]:
    """Raises StorageError where the disk refuses what a run in `out` writes inside.

    It names the file, the reason, the checkpoint that stays and the remedy.
    """
    try:
        yield
    except (UserError, Preempted, StorageError):
        raise
    except Exception as error:
        found = refusal(error)
        if found is None:
            raise
        number, file = found
        below = file is not None and Path(file).absolute().is_relative_to(out.absolute())
        if isinstance(error, PermissionError) and not below:
            raise  # of something else
        remedy = "free space on that disk" if number in FULL else "make the folder writable"
        raise StorageError(
            f"{file or out} could not be written: {os.strerror(number).lower()}. {_safe(out)}; "
            f"{remedy}, then the same command with --resume goes on"
        ) from error


def _safe(out: Path) -> str:
    """The newest whole checkpoint, in words."""
    for name, unit in (("policy", "iteration"), ("sft", "SFT step")):
        place = out / "checkpoints" / name
        steps = whole(place)
        if steps:
            return f"The checkpoint of {unit} {steps[-1]} in {place} is safe"
    return f"There is no checkpoint in {out} yet"


def open_journal(out: Path, newest: int) -> Journal:
    """The journal that this process writes; it knows the verdicts of all processes that have been.

    So it does not matter how many there are when a run goes on.
    """
    number = processes.index()
    own = out / (f"verdicts-{number}.jsonl" if number else "verdicts.jsonl")

    def cut() -> None:
        for path in out.glob("verdicts*.jsonl"):
            cut_torn_line(path)

    processes.on_first(cut)
    journal = Journal.open(own, newest, sorted(out.glob("verdicts*.jsonl")))
    processes.meet()  # nobody writes before all have read
    return journal


def iterations(config: Config) -> int:
    """Iterations of reinforcement learning that the algorithm does."""
    return 0 if config.algorithm == "sft" else config.iterations


def fine_tunes(config: Config) -> bool:
    """Whether the run begins with supervised fine-tuning."""
    return config.sft.path is None and config.sft.epochs > 0
