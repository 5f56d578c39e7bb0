"""Which iterations, trajectories and rollouts go into a page, so that it stays small.

The newest iteration comes first, then the first one and the best, then those in between, spread
evenly. Texts of rollouts follow while there is room, those of the largest swings first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vinejax.config import UserError
from vinejax.report.page import blocks
from vinejax.report.page.runs import Run
from vinejax.report.page.trajectories import Viewed, local_tokenizer, problems_of, view
from vinejax.report.rollouts import read_rollouts
from vinejax.tokenizer import Tokenizer

ITERATIONS = 24  # of a run
NEWEST, OTHERS = 500, 100  # trajectories of the newest iteration, of each other one
SHARE = 0.6  # of the room that trajectories may take; the rest is for texts of rollouts


@dataclass
class Chosen:
    """What the page has of a run's trajectories."""

    iterations: list[dict[str, Any]] = field(default_factory=list)  # in order, for the viewer
    elements: list[str] = field(default_factory=list)  # HTML
    notes: list[str] = field(default_factory=list)  # what was left out, for people


@dataclass(frozen=True)
class _Iteration:
    number: int
    name: str  # prefix of the ids of its elements
    viewed: list[Viewed]
    sampled: int  # all trajectories of the iteration


def choose(run: Run, name: str, room: int, tokenizer: Tokenizer | None = None) -> Chosen:
    """The trajectories of a run in at most `room` bytes of HTML.

    `name` begins the ids of its elements: `name-12` holds {problems, items} of iteration 12, and
    `name-12-3` the rollouts' texts of the trajectory number 3 there. Without a `tokenizer` that of
    the run's own folder is taken, if it is at hand.
    """
    found, wanted = Chosen(), _wanted(run)
    tokenizer = tokenizer or local_tokenizer(run.config)
    kept: list[_Iteration] = []
    left = room * SHARE
    for place, number in enumerate(wanted):
        taken = _iteration(run, name, number, tokenizer, OTHERS if place else NEWEST, left, found)
        if taken is not None:
            left -= len(found.elements[-1])
            kept.append(taken)
    texts = _add_rollouts(kept, room - sum(map(len, found.elements)), found)
    found.iterations = [
        {
            "number": it.number,
            "id": it.name,
            "shown": len(it.viewed),
            "sampled": it.sampled,
            "texts": texts.get(it.number, []),
        }
        for it in sorted(kept, key=lambda it: it.number)
    ]
    found.notes += _left_out(run, kept, texts, tokenizer)
    return found


def _wanted(run: Run) -> list[int]:
    """The iterations to show, the most wanted first."""
    there = list(run.iterations)
    if not there:
        return []
    best = [n for n in (run.summary.get("best_iteration"),) if n in there]
    spread = np.linspace(0, len(there) - 1, min(ITERATIONS, len(there))).round().astype(int)
    order = [there[-1], there[0], *best, *(there[i] for i in spread)]
    return list(dict.fromkeys(order))[:ITERATIONS]


def _iteration(
    run: Run,
    name: str,
    number: int,
    tokenizer: Tokenizer | None,
    most: int,
    room: float,
    found: Chosen,
) -> _Iteration | None:
    """Adds the element of an iteration's trajectories, or nothing where there is no room."""
    try:
        records = read_rollouts(run.folder, number)
        shown = records[:most] if tokenizer else [r for r in records if "text" in r][:most]
        numbers, problems = problems_of(shown, tokenizer)
        viewed = [v for r in shown if (v := view(r, numbers, tokenizer)) is not None]
    except (UserError, KeyError, TypeError, ValueError, IndexError) as error:
        found.notes.append(f"The rollouts of iteration {number} cannot be read ({error!r}).")
        return None
    while viewed:
        packed = blocks.pack({"problems": problems, "items": [v.item for v in viewed]})
        element = blocks.element(f"{name}-{number}", packed)
        if len(element) <= room:
            found.elements.append(element)
            return _Iteration(number, f"{name}-{number}", viewed, len(records))
        viewed = viewed[: len(viewed) // 2]
    return None


def _add_rollouts(kept: Sequence[_Iteration], room: float, found: Chosen) -> dict[int, list[int]]:
    """Adds texts of rollouts while there is room; by iteration, the trajectories that have them."""
    texts: dict[int, list[int]] = {}
    for it in kept:
        order = sorted(range(len(it.viewed)), key=lambda m: -it.viewed[m].swing)
        for m in order:
            rollouts = it.viewed[m].rollouts
            if rollouts is None:
                continue
            element = blocks.element(f"{it.name}-{m}", blocks.pack(rollouts))
            if len(element) > room:
                return texts
            room -= len(element)
            found.elements.append(element)
            texts.setdefault(it.number, []).append(m)
    return texts


def _left_out(
    run: Run,
    kept: Sequence[_Iteration],
    texts: dict[int, list[int]],
    tokenizer: Tokenizer | None,
) -> list[str]:
    """What a reader might miss, in sentences."""
    notes = []
    if len(kept) < len(run.iterations):
        notes.append(f"{len(kept)} of the {len(run.iterations)} iterations on disk are shown.")
    shown, sampled = sum(len(it.viewed) for it in kept), sum(it.sampled for it in kept)
    if shown < sampled:
        reason = "" if tokenizer else " (the others need the tokenizer, which is not at hand)"
        notes.append(f"Of these, {shown:,} of {sampled:,} trajectories are shown{reason}.")
    on_disk = sum(v.rollouts is not None for it in kept for v in it.viewed)
    there = sum(map(len, texts.values()))
    if 0 < there < on_disk:
        notes.append(
            f"The rollouts' texts of {there:,} of {on_disk:,} trajectories fit in, those with the "
            "largest swings first; the others show the rollouts' rewards."
        )
    return notes
