"""Whether a run's data, tokenizer and grader do what it needs of them: part of `--dry_run`.

No weights are read, and nothing is fetched from the hub.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vinejax import stop
from vinejax.config import Config, UserError
from vinejax.grading import GraderPool, Verdict
from vinejax.tasks import Problem, Task, lengths
from vinejax.tokenizer import Tokenizer, load_tokenizer

SOLUTIONS = 8  # of each split, the first ones, are graded
WORKERS = 4  # that grade them, at most

Splits = Mapping[str, Sequence[Problem]]


def check(config: Config, task: Task) -> tuple[dict[str, Any], list[str]]:
    """What was found, by name, and warnings.

    Raises UserError if something is missing or broken, where a run would, and for a grader that
    fails on a reference solution.
    """
    tokenizer, about = _tokenizer(config, task)
    if config.task.path is None and hasattr(config.task.options, "hub"):
        return {"problems": "not checked: task.path is not set", "tokenizer": about}, []
    names = dict.fromkeys((task.sft_split, "train", "validation", "test"))
    splits = {name: task.load(name) for name in names}
    found: dict[str, Any] = {"problems": {name: len(of) for name, of in splits.items()}}
    warnings: list[str] = []
    if tokenizer is not None:
        found["prompt_tokens"], warnings = _prompts(config, task, tokenizer, splits)
    found["reference_solutions"], more = _solutions(config, task, splits)
    return found | {"tokenizer": about}, warnings + more


def _tokenizer(config: Config, task: Task) -> tuple[Tokenizer | None, str]:
    """The run's tokenizer, if it can be had here, and what to say of it."""
    source = config.policy.tokenizer or config.sft.path or config.policy.path
    if source is None:
        return task.tokenizer(), "the task's own"
    is_path = source.count("/") != 1 or source.startswith((".", "/", "~"))
    if not is_path and not Path(source).exists():
        return None, f"not checked: {source} is no folder here, so it is taken for a hub id"
    tokenizer = load_tokenizer(source)
    return tokenizer, f"{source}, {tokenizer.vocab_size} ids"


def _prompts(
    config: Config, task: Task, tokenizer: Tokenizer, splits: Splits
) -> tuple[dict[str, Any], list[str]]:
    """The longest prompt of each split, and how many are over task.max_prompt_tokens."""
    most, found, warnings = config.task.max_prompt_tokens, {}, []
    for name, problems in splits.items():
        own = [len(tokenizer.encode(task.prompt(problem), bos=True)) for problem in problems]
        over = sum(length > most for length in own)
        found[name] = {"longest": max(own, default=0), "over_max_prompt_tokens": over}
        if name == "train":
            lengths.check_train(config, own)
        elif name in ("validation", "test"):
            lengths.check_held_out(config, name, own)
        if over:
            what = {
                "train": "they are left out; raise it to train on them",
                "validation": "they are evaluated all the same",
                "test": "they are evaluated all the same",
            }.get(name, "sft.max_length decides which of them are demonstrations")
            warnings.append(
                f"{over} of {len(own)} {name} problems have prompts over task.max_prompt_tokens = "
                f"{most}, the longest {max(own)} tokens: {what}"
            )
    return found, warnings


def _solutions(config: Config, task: Task, splits: Splits) -> tuple[dict[str, Any], list[str]]:
    """How many of the first reference solutions of each split get the full mark.

    Some may be wrong, as in `ledger` for SFT; a split without a right one has a warning.
    """
    found: dict[str, Any] = {}
    warnings: list[str] = []
    workers = config.grading.workers or min(WORKERS, os.cpu_count() or 1)
    strict = config.grading.grader == "strict"
    kinds = [strict]
    if task.has_two_graders:
        kinds.append(not strict)
    with GraderPool(
        config.task.name, config.task.arguments(), workers, config.grading.limit
    ) as graders:
        for name, problems in splits.items():
            items = [(p, _response(task, p)) for p in problems[:SOLUTIONS]]
            verdicts = {kind: graders.grade(items, strict=kind) for kind in kinds}
            for kind, own in verdicts.items():
                _refuse_faults(config, "grade_strict" if kind else "grade", name, items, own)
            poor = [
                f"{problem.id} ({verdict.note or f'grade {verdict.grade:g}'})"
                for (problem, text), verdict in zip(items, verdicts[strict], strict=True)
                if verdict.grade < 1 or not task.finished(text)
            ]
            found[name] = {"graded": len(items), "right": len(items) - len(poor)}
            if poor:
                found[name]["first_not_right"] = poor[0]
            if poor and len(poor) == len(items):
                warnings.append(
                    f"none of the first {len(items)} reference solutions of {name} gets the full "
                    f"mark, as {poor[0]}: compare the task's target, extract_answer and grade"
                )
    return found, warnings


def _response(task: Task, problem: Problem) -> str:
    """The reference solution as the grader would have it from a policy."""
    text = task.target(problem)
    return text[: stop.find(text, task.stop)]


def _refuse_faults(
    config: Config,
    method: str,
    split: str,
    items: Sequence[tuple[Problem, str]],
    verdicts: Sequence[Verdict],
) -> None:
    """Raises UserError for a grader that raised or died; a time-out is no more than a poor mark."""
    for (problem, _), verdict in zip(items, verdicts, strict=True):
        if verdict.note not in ("", "timeout"):
            raise UserError(
                f"task.name is {config.task.name!r}, whose {method} fails on the reference "
                f"solution of {split} problem {problem.id} ({verdict.note}): correct it, since "
                "every answer on which it fails is worth 0"
            )
