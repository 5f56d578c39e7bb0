"""The analyses of a run folder, checkpoint by checkpoint, so that an interrupted one goes on.

    policy of a checkpoint -> pool of states -> values-000010.json   raw: truth and predictions
                                             -> actions-000010.json  the same of next steps
                           -> gradients-000010.json                  of batches of their own
    all raw files          -> values.json, actions.json, gradients.json   metrics with intervals
    metrics.jsonl          -> curves.json
    these four             -> analysis.html

With no actions or no gradients asked for, no file of that name is written.
A raw file that is there and was made with the same flags for the same configuration is read, not
made again; everything else is made anew from the raw files, which takes seconds.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinejax import policy, report
from vinejax.analysis import actions, figures, gradients, values
from vinejax.analysis.curves import curves
from vinejax.analysis.predictors import Critic, Policy
from vinejax.analysis.values import POOL, Record
from vinejax.checkpoint import Checkpoints, whole
from vinejax.config import Config, UserError
from vinejax.grading import GraderPool
from vinejax.train import folder
from vinejax.train.evaluation import graders_of
from vinejax.train.run import params_of
from vinejax.train.setup import Setup, prepare

EARLY = 2  # checkpoints, the first ones asked for, whose next steps are ranked (paper: early)
PAGE = "analysis.html"
SUMMARIES = {
    "values": values.summarise,
    "actions": actions.summarise,
    "gradients": gradients.summarise,
}


@dataclass(frozen=True)
class Asked:
    """How much is to be sampled at a checkpoint."""

    states: int = 200  # whose values are predicted
    rollouts: int = 256  # of a true value (paper)
    actions: int = 100  # states whose next steps are ranked; 0: none
    alternatives: int = 3  # distinct next steps that such a state has at least (authors)
    gradients: int = 8  # batches whose gradients are compared; 0: none


def analyse(
    run: Path,
    out: Path,
    asked: Asked,
    checkpoints: str = "all",
    note: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Writes all files to `out`; returns what values, actions, gradients and curves.json hold.

    Of actions and gradients that are not asked for there is no file, and an empty list.

    `checkpoints` is "all" (the start of reinforcement learning and all that are kept), "newest", or
    iterations, "0,10,20". Raises UserError for bad input, before anything is written.
    """
    config = folder.read_config(run)
    chosen = choose(run, config, checkpoints)
    folder.check_place(out)
    lines, summary = report.read_metrics(run), run / "summary.json"
    known = json.loads(summary.read_text()) if summary.exists() else {}
    out.mkdir(parents=True, exist_ok=True)
    places = _places(chosen, asked)
    marks = _marks(run, asked)
    todo = [
        (iteration, kinds)
        for iteration in chosen
        if (
            kinds := [
                kind
                for kind, own in places.items()
                if iteration in own and _read(out, kind, iteration, marks[kind]) is None
            ]
        )
    ]
    if todo:
        _sample(run, config, out, asked, todo, marks, note)
    result: dict[str, Any] = {
        kind: [
            {"iteration": i} | SUMMARIES[kind](record)
            for i in own
            if (record := _read(out, kind, i, marks[kind])) is not None
        ]
        for kind, own in places.items()
    }
    result["curves"] = curves(config, lines, known)
    for name, content in result.items():
        head = {"asked": {"config": _digest(run), **vars(asked)}}
        if getattr(asked, name, None) == 0:  # an earlier file would be that of another question
            (out / f"{name}.json").unlink(missing_ok=True)
        else:
            report.write_json(out / f"{name}.json", head | {name: content})
    raw = {i: _read(out, "values", i, marks["values"]) or {} for i in (chosen[0], chosen[-1])}
    figures.write(out / PAGE, str(run), config, asked.rollouts, result, raw)
    return result


def choose(run: Path, config: Config, checkpoints: str) -> list[int]:
    """The iterations that are meant, ascending. Raises UserError, which names those there are."""
    place = run / "checkpoints"
    kept = sorted(whole(place / "policy")) if (place / "policy").is_dir() else []
    has_start = not folder.fine_tunes(config) or bool(whole(place / "sft"))
    there = [*([0] if has_start else []), *kept]
    if not there:
        raise UserError(f"--run is {run}, which has no checkpoint yet: let it run until the first")
    if checkpoints in ("all", "newest"):
        return there if checkpoints == "all" else there[-1:]
    names = checkpoints.split(",")
    wrong = [name for name in names if not name.isdecimal() or int(name) not in there]
    if wrong:
        raise UserError(
            f"--checkpoints is {checkpoints!r}, but there is no checkpoint {wrong[0]!r}: give all, "
            f"newest, or some of {','.join(map(str, there))}"
        )
    return sorted({int(name) for name in names})


def _places(chosen: Sequence[int], asked: Asked) -> dict[str, list[int]]:
    """The checkpoints, ascending, at which each kind of file is made."""
    ends = sorted({chosen[0], chosen[-1]})
    return {
        "values": list(chosen),
        "actions": list(chosen[:EARLY]) if asked.actions else [],
        "gradients": ends if asked.gradients else [],
    }


def _marks(run: Path, asked: Asked) -> dict[str, dict[str, Any]]:
    """By kind of file what it must have been made for: the configuration and the flags it needs."""
    flags, digest = dict(vars(asked)), {"config": _digest(run)}
    of_gradients = {"gradients": flags.pop("gradients")}
    sampled = digest | flags
    return {"values": sampled, "actions": sampled, "gradients": digest | of_gradients}


def _digest(run: Path) -> str:
    """Names the configuration: another run in the same place must not be taken for this one."""
    return hashlib.blake2b((run / "config.json").read_bytes(), digest_size=8).hexdigest()


def _path(out: Path, kind: str, iteration: int) -> Path:
    return out / f"{kind}-{iteration:06d}.json"


def _read(out: Path, kind: str, iteration: int, mark: dict[str, Any]) -> Record | None:
    """A raw file that was made for `mark`; None without one."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = json.loads(_path(out, kind, iteration).read_text())
        if isinstance(found, dict) and found.get("asked") == mark:
            return found
    return None


def _sample(
    run: Path,
    config: Config,
    out: Path,
    asked: Asked,
    todo: Sequence[tuple[int, list[str]]],
    marks: Mapping[str, dict[str, Any]],
    note: Callable[[str], None],
) -> None:
    """Makes the raw files that are missing."""
    setup, untrained = prepare(config)
    with graders_of(config) as graders:
        for iteration, kinds in todo:
            note(f"checkpoint {iteration}: sampling {' and '.join(kinds)}")
            own, pool = _policy(run, setup, untrained, iteration, graders), []
            if {"values", "actions"} & set(kinds):
                pool = values.reached(own, POOL * max(asked.states, asked.actions))
            for kind in kinds:
                if kind == "values":
                    record = values.sample(own, pool, asked.states, asked.rollouts)
                elif kind == "actions":
                    least = asked.alternatives
                    record = actions.sample(own, pool, asked.actions, least, asked.rollouts)
                else:
                    params, _ = params_of(run, config, untrained, iteration=iteration)
                    record = gradients.sample(own, params, asked.gradients)
                head = {"asked": marks[kind], "iteration": iteration}
                report.write_json(_path(out, kind, iteration), head | record)


def _policy(
    run: Path, setup: Setup, untrained: policy.Params, iteration: int, graders: GraderPool
) -> Policy:
    """The policy of a checkpoint, with its critic if the method has one."""
    config, critic = setup.config, None
    params, _ = params_of(run, config, untrained, iteration=iteration)
    if config.algorithm == "ppo":
        start = params_of(run, config, untrained, iteration=0)[0] if iteration else params
        place = run / "checkpoints" / "policy"
        with contextlib.ExitStack() as stack:
            saved = stack.enter_context(Checkpoints(place, read_only=True)) if iteration else None
            critic = Critic.load(setup, start, saved, iteration)
    return Policy.of(setup, iteration, params, graders, critic)
