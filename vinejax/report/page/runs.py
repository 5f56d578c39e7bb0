"""A run folder as the report reads it: what is there counts, whatever the run's age or state."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vinejax.config import UserError
from vinejax.report.costs import costs
from vinejax.report.curve import VALIDATION
from vinejax.report.metrics import START, read_metrics
from vinejax.report.page.text import visible
from vinejax.report.rollouts import iterations


@dataclass(frozen=True)
class Run:
    """One run. Raw dictionaries, so that folders of other versions can be shown, too."""

    folder: Path
    name: str  # told apart from the other runs' on the page
    config: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]  # of metrics.jsonl
    start: Mapping[str, Any]  # validation before the first iteration, as far as it is known
    summary: Mapping[str, Any]  # empty until the run has ended
    environment: Mapping[str, Any]
    endpoint: Mapping[str, Any]  # measured in a comparison
    evaluations: Sequence[Mapping[str, Any]]  # by experiments.evaluate
    iterations: Sequence[int]  # that have rollouts, counted from 1
    notes: Sequence[str]  # what could not be read, for people

    @property
    def algorithm(self) -> str:
        """The method's name."""
        return str(self.config.get("algorithm", "unknown method"))

    @property
    def done(self) -> int:
        """Iterations in metrics.jsonl."""
        return int(self.lines[-1]["iteration"]) if self.lines else 0

    @property
    def planned(self) -> int:
        """Iterations that the configuration asks for."""
        return 0 if self.algorithm == "sft" else int(self.config.get("iterations") or 0)

    @property
    def finished(self) -> bool:
        """Whether the summary is that of all iterations."""
        return bool(self.summary) and self.summary.get("iterations", 0) >= self.planned

    @property
    def has_values(self) -> bool:
        """Whether its method gives states a value, measured or by a critic."""
        return any("value" in line for line in self.lines[-1:])

    @property
    def episodes(self) -> int:
        """Trajectories of one iteration."""
        return int(self.config.get("prompts") or 0) * int(self.config.get("samples") or 0)

    @property
    def costs(self) -> dict[str, Any]:
        """Tokens and seconds by phase; see `report.costs`."""
        return costs([{k: v for k, v in line.items() if v is not None} for line in self.lines])


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in `folders`, in order, each once, with names that differ.

    Raises UserError for a folder that holds no run.
    """
    places = {folder.resolve(): folder for folder in folders}
    return _named([_read(folder) for folder in places.values()])


def _read(folder: Path) -> Run:
    _check(folder)
    notes: list[str] = []

    def load(name: str) -> dict[str, Any]:
        path = folder / name
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            notes.append(f"{name} cannot be read ({type(error).__name__}) and is left out.")
            return {}
        return found if isinstance(found, dict) else {}

    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder / 'config.json'} cannot be read ({error}): restore it from a copy, or leave "
            "this folder out"
        ) from error
    files = sorted(path.name for path in folder.glob("evaluation-*.json"))
    summary = load("summary.json")
    return Run(
        folder=folder,
        name="",
        config=config,
        lines=read_metrics(folder),
        start=load(START) or _start_of(summary),
        summary=summary,
        environment=load("environment.json"),
        endpoint=load("endpoint.json"),
        evaluations=[found for name in files if (found := load(name))],
        iterations=iterations(folder),
        notes=notes,
    )


def _start_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The validation of the start in a run that wrote none down, where no iteration was better."""
    if summary.get("best_iteration") != 0 or "best_validation_pass_at_1" not in summary:
        return {}
    return {VALIDATION: summary["best_validation_pass_at_1"]}


def _check(folder: Path) -> None:
    """Raises UserError, with the remedy, unless `folder` holds a run."""
    if (folder / "config.json").is_file():
        return
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise UserError(f"{folder} is {what}: give a run folder, such as runs/tiny-vineppo-seed0")
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    remedy = (
        f"give the run folders in it: {', '.join(inside[:4])}{' ...' if len(inside) > 4 else ''}"
        if inside
        else "give the folder that experiments.run wrote (its --out)"
    )
    raise UserError(f"{folder} holds no run (no config.json): {remedy}")


def _named(runs: Sequence[Run]) -> list[Run]:
    """Method and seed as the name; where these do not tell runs apart, the folder's name too."""
    names = [f"{run.algorithm}, seed {run.config.get('seed', '?')}" for run in runs]
    if len(set(names)) < len(names):
        folders = [run.folder.resolve().name for run in runs]
        names = [f"{name} ({folder})" for name, folder in zip(names, folders, strict=True)]
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[i] = f"{name}, {seen[name]}"
    return [replace(run, name=visible(name)) for run, name in zip(runs, names, strict=True)]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with dotted names."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
