"""Trajectories for the viewer: texts cut into steps, with values, advantages and rollouts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vinejax import tasks
from vinejax.config import from_dict
from vinejax.report.page.text import shortened, visible
from vinejax.tokenizer import Tokenizer, load_tokenizer

PROBLEM, STEP, ROLLOUT = 4_000, 8_000, 1_000  # characters that are shown of each

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Viewed:
    """One trajectory: what the list and the steps need, and the rollouts' texts apart."""

    item: dict[str, Any]  # see `view`
    rollouts: list[list[str | None]] | None  # texts by step, None where not kept

    @property
    def swing(self) -> float:
        """The largest change of value in one step; of methods without values, advantage."""
        return max((abs(a) for a in self.item.get("a") or () if a is not None), default=0.0)


def local_tokenizer(config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a run with this configuration, if it is at hand without the network."""
    try:
        policy = config.get("policy") or {}
        for name in (
            policy.get("tokenizer"),
            (config.get("sft") or {}).get("path"),
            policy.get("path"),
        ):
            if name is not None:
                path = Path(name).expanduser()
                return load_tokenizer(path) if path.exists() else None
        task = from_dict({"task": config["task"]}).task  # all else may be of another version
        return tasks.get(task.name, **task.arguments()).tokenizer()
    except Exception:  # a folder of another version, or a task that is not installed here
        return None


def view(record: Record, problems: dict[str, int], tokenizer: Tokenizer | None) -> Viewed | None:
    """A line of `rollouts/` for the viewer; None if it has no text and no tokenizer reads it.

    The item has p, the number that `problems` gives its problem; r, the reward; f, how it ended; u,
    if unfinished; n, its tokens; s, the text of each step; and, where the record has them, v and a,
    value before and advantage of each step, and k, the rewards of the rollouts from before it.
    A step of several states (`values.states`) has the value of the first and the sum of advantages.
    """
    first = _first_states(record)
    texts = _step_texts(record, first, tokenizer)
    if texts is None:
        return None
    uncut = len(texts) < len(first)  # one text, and no numbers of its steps
    item: dict[str, Any] = {
        "p": problems[record["problem"]],
        "r": record["reward"],
        "f": record.get("finish", ""),
        "n": len(record["tokens"]) - record["prompt_length"],
        "s": [shortened(visible(text), STEP) for text in texts],
    }
    if record.get("unfinished"):
        item["u"] = 1
    if uncut:
        return Viewed(item, None)
    if record.get("values") is not None:
        item["v"] = [_number(record["values"], i) for i in first]
    if record.get("advantages") is not None:
        given = record["advantages"]
        pieces = [given[i:j] for i, j in _spans(first, len(given))]
        item["a"] = [round(sum(x or 0.0 for x in piece), 4) for piece in pieces]
    return _with_rollouts(item, record.get("rollouts"), first)


def _with_rollouts(item: dict[str, Any], rollouts: Any, first: Sequence[int]) -> Viewed:
    if not rollouts:
        return Viewed(item, None)
    of_step = [rollouts[i] if i < len(rollouts) else [] for i in first]
    item["k"] = [[rollout["reward"] for rollout in own] for own in of_step]
    return Viewed(
        item,
        [
            [
                None if rollout["text"] is None else shortened(visible(rollout["text"]), ROLLOUT)
                for rollout in own
            ]
            for own in of_step
        ],
    )


def _first_states(record: Record) -> list[int]:
    """The first state of each step; a step in which no state starts is part of the one before."""
    states, steps = record["state_starts"], record["step_starts"]
    if states == steps:
        return list(range(len(states)))
    found = np.searchsorted(np.asarray(states, np.int64), np.asarray(steps, np.int64))
    return np.unique(found[found < len(states)]).tolist()


def _spans(starts: Sequence[int], end: int) -> list[tuple[int, int]]:
    """Start and end of neighbouring pieces; none of no starts."""
    return list(zip(starts, [*starts[1:], end], strict=False))


def _step_texts(
    record: Record, first: Sequence[int], tokenizer: Tokenizer | None
) -> list[str] | None:
    """The text of each step; all of it as one where it cannot be cut."""
    text = record.get("text")
    if text is not None and "text_starts" in record:
        cuts = [record["text_starts"][i] for i in first]
        return [text[i:j] for i, j in _spans(cuts, len(text))]
    if tokenizer is None:
        return None if text is None else [text]
    tokens = record["tokens"][record["prompt_length"] :]
    starts = [record["state_starts"][i] for i in first]
    table = tokenizer.bytes_of_ids
    return [
        b"".join(table[token] for token in tokens[i:j]).decode("utf-8", "replace")
        for i, j in _spans(starts, len(tokens))
    ]


def problems_of(
    records: Sequence[Record], tokenizer: Tokenizer | None
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The problems of some records: a number for each id, and what is shown of each.

    A text that was not kept is read from the prompt's tokens: without what the prompts put around
    the kept ones, or, where that cannot be told, all of it, marked by `prompt`.
    """
    best: dict[str, Record] = {}
    for record in records:
        if record["problem"] not in best or "problem_text" in record:
            best[record["problem"]] = record
    shown, frame = [], None if tokenizer is None else _frame(best.values(), tokenizer)
    for name, record in best.items():
        text, inside = record.get("problem_text"), True
        if text is None and tokenizer is not None:
            text, inside = _problem_in(_prompt(record, tokenizer), frame)
        entry: dict[str, Any] = {
            "id": visible(str(name)),
            "text": shortened(visible(text or ""), PROBLEM),
        }
        if not inside:
            entry["prompt"] = 1
        if record.get("solution"):
            entry["solution"] = shortened(visible(record["solution"]), PROBLEM)
        shown.append(entry)
    return {name: i for i, name in enumerate(best)}, shown


def _prompt(record: Record, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(record["tokens"][: record["prompt_length"]], start=True)


def _frame(records: Iterable[Record], tokenizer: Tokenizer) -> tuple[str, str] | None:
    """What stands before and behind the problem in a prompt; None where that cannot be told."""
    for record in records:
        if record.get("problem_text"):
            before, found, after = _prompt(record, tokenizer).partition(record["problem_text"])
            if found:
                return before, after
    return None


def _problem_in(prompt: str, frame: tuple[str, str] | None) -> tuple[str, bool]:
    """The problem, and True; the prompt, and False, where it does not stand in the frame."""
    if frame is None:
        return prompt, False
    before, after = frame
    fits = prompt.startswith(before) and prompt.removeprefix(before).endswith(after)
    return (prompt.removeprefix(before).removesuffix(after), True) if fits else (prompt, False)


def _number(values: Sequence[float | None], i: int) -> float | None:
    value = values[i] if i < len(values) else None
    return None if value is None else round(value, 4)
