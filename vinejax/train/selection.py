"""Which of a run's own responses are imitated, and which are set against each other.

The choice depends on what was sampled, never on the order in which it is handed in.
"""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

import numpy as np

RIGHT = 1.0  # the least reward of a response to imitate
ACCEPTED = 0.5  # the least reward of the better one of a pair
STREAM = 0xD90  # keeps the draw of pairs apart from the other uses of the seed


class Sampled(NamedTuple):
    """Where a response comes from, and what it was worth; sorts by problem, then by age."""

    problem: str
    iteration: int
    sample: int  # its place among the iteration's trajectories
    reward: float


class Pair(NamedTuple):
    """Two responses to one problem."""

    chosen: Sampled
    rejected: Sampled


def correct(responses: Iterable[Sampled], most: int) -> list[Sampled]:
    """The right responses, of each problem the `most` earliest, in the order of their age.

    Source: the VinePPO authors' RestEM.
    """
    kept: list[Sampled] = []
    for group in _by_problem(responses).values():
        kept += [r for r in group if r.reward >= RIGHT][:most]
    return sorted(kept, key=lambda r: (r.iteration, r.sample))


def pairs(responses: Iterable[Sampled], most: int, seed: int) -> list[Pair]:
    """Every accepted with every rejected response of the same problem; sorted by problem.

    Of a problem with more than `most` pairs so many are drawn, without replacement. The draw
    depends on `seed`, the problem's id and its responses alone. Source: the VinePPO authors'
    DPO-Positive.
    """
    found = []
    for problem, group in _by_problem(responses).items():
        accepted = [r for r in group if r.reward >= ACCEPTED]
        rejected = [r for r in group if r.reward < ACCEPTED]
        count = len(accepted) * len(rejected)
        chosen = np.arange(count)
        if count > most:
            name = int.from_bytes(hashlib.blake2b(problem.encode(), digest_size=8).digest())
            rng = np.random.default_rng([seed, STREAM, name])
            chosen = np.sort(rng.choice(count, most, replace=False))
        for i in chosen.tolist():
            found.append(Pair(accepted[i // len(rejected)], rejected[i % len(rejected)]))
    return found


def _by_problem(responses: Iterable[Sampled]) -> Mapping[str, list[Sampled]]:
    return {
        problem: list(group) for problem, group in groupby(sorted(responses), lambda r: r.problem)
    }
