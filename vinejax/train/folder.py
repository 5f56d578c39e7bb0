"""The run folder: what may be put there, what it holds, and whether a run may go on in it."""

import json
from pathlib import Path

from vinejax import report
from vinejax.config import Config, UserError, differences, from_dict, to_dict


def check(out: Path, config: Config, resume: bool) -> bool:
    """Whether `out` holds a run of this configuration to go on with. Writes nothing.

    Raises UserError for a folder with something else in it, with a run that `resume` was not given
    for, or with a run of another configuration (the fields that differ are named).
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out is {out}, which is a file: give a folder")
    if not out.exists() or not any(out.iterdir()):
        return False
    path = out / "config.json"
    if not path.exists():
        raise UserError(f"--out is {out}, which is not empty and holds no run: give another folder")
    if not resume:
        raise UserError(
            f"--out is {out}, which holds a run: add --resume to go on with it, "
            "or give another folder"
        )
    try:
        before = from_dict(json.loads(path.read_text()))
    except (ValueError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}): give another --out") from error
    changed = differences(before, config)
    if changed:
        listed = "\n  ".join(changed)
        raise UserError(
            f"--out is {out}, which holds a run of another configuration:\n  {listed}\n"
            "give another --out, or the run's own values"
        )
    return True


def write(out: Path, config: Config) -> None:
    """Makes the folder and puts the resolved configuration and the environment into it."""
    out.mkdir(parents=True, exist_ok=True)
    report.write_json(out / "config.json", to_dict(config))
    report.write_json(out / "environment.json", report.environment())


def read_config(out: Path) -> Config:
    """The configuration of the run in `out`. Raises UserError if there is none."""
    path = out / "config.json"
    if not path.exists():
        raise UserError(f"--run is {out}, which holds no run (no config.json): give a run folder")
    return from_dict(json.loads(path.read_text()))


def finished(out: Path, config: Config) -> dict | None:
    """The summary of a run that has done all its iterations."""
    path = out / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text())
    return summary if summary["iterations"] >= iterations(config) else None


def iterations(config: Config) -> int:
    """Iterations of reinforcement learning that the algorithm does."""
    return 0 if config.algorithm == "sft" else config.iterations
