"""The work of the rollout benchmarks: model shapes, and jobs that continue prefixes.

A job is (trajectory, prefix_length, stop_length): continue the first `prefix_length` tokens of a
trajectory by exactly `stop_length` tokens, the last of which would be the end of the response. A
file of jobs is JSON: {"jobs": [[trajectory, prefix_length, stop_length], ...], "S": width}, where a
trajectory has `width` tokens and no response reaches it.

Without a file, lists follow from a seed. Response lengths are log-normal with median 63 and mean
79, cut to 7 ... width - 1: many short answers and a few that fill the budget.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinejax.config import UserError

PROMPT = 100  # tokens before the first state of a trajectory
STEPS = (16, 28)  # tokens of a reasoning step, the range that a trajectory's own is drawn from
MEDIAN, MEAN, SHORTEST = 63, 79, 7  # of response lengths, tokens


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama-type decoder with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


SHAPES = {
    "slice6": Shape(576, 6, 9, 3, 64, 1536, 8192),
    "smollm2-135m": Shape(576, 30, 9, 3, 64, 1536, 49152),
}


def shape(text: str) -> Shape:
    """A shape by name, or seven numbers as d,L,H,KV,HD,FF,V. Raises UserError."""
    if text in SHAPES:
        return SHAPES[text]
    try:
        return Shape(*(int(word) for word in text.split(",")))
    except (ValueError, TypeError):
        raise UserError(
            f"--shape is {text!r}: give {' or '.join(SHAPES)}, or seven numbers "
            "hidden,layers,heads,kv_heads,head_dim,ffn,vocab"
        ) from None


class Job(NamedTuple):
    """Continue the first `prefix` tokens of `trajectory` by `stop` tokens."""

    trajectory: int
    prefix: int
    stop: int


@dataclass(frozen=True)
class Work:
    """Jobs, and the tokens of a trajectory."""

    jobs: tuple[Job, ...]
    width: int

    @property
    def useful(self) -> int:
        """Tokens that the jobs ask for."""
        return sum(job.stop for job in self.jobs)

    def take(self, count: int) -> "Work":
        """`count` of the jobs, evenly spread over the list; all if 0."""
        if count < 0 or count > len(self.jobs):
            raise UserError(f"{count} jobs are asked for, of a list of {len(self.jobs)}")
        if not count:
            return self
        chosen = (self.jobs[i * len(self.jobs) // count] for i in range(count))
        return Work(tuple(chosen), self.width)

    def to_json(self) -> dict[str, Any]:
        """What a file of jobs holds."""
        return {"jobs": [list(job) for job in self.jobs], "S": self.width}

    @staticmethod
    def of(raw: dict[str, Any]) -> "Work":
        """The inverse of `to_json`. Raises UserError for a job that does not fit."""
        work = Work(tuple(Job(*job) for job in raw["jobs"]), raw["S"])
        for i, job in enumerate(work.jobs):
            if not (job.trajectory >= 0 and 1 <= job.prefix <= work.width and job.stop >= 1):
                raise UserError(f"job {i} is {list(job)}, in trajectories of {work.width} tokens")
        if not work.jobs:
            raise UserError("--jobs: the list of jobs is empty; give one that has some")
        return work

    def trajectories(self, vocab: int) -> np.ndarray:
        """int32 [N, width]: random tokens, the same for every engine; ids 0 to 2 do not occur."""
        count = max(job.trajectory for job in self.jobs) + 1
        return np.random.default_rng(0).integers(3, vocab, (count, self.width), np.int32)


def read(file: Path) -> Work:
    """The jobs of a file. Raises UserError when it holds none."""
    try:
        raw = json.loads(file.read_text())
        return Work.of({"jobs": raw["jobs"], "S": raw["S"]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--jobs is {file}, which is no list of jobs ({error}): give a JSON file with "
            '{"jobs": [[trajectory, prefix, stop], ...], "S": width}'
        ) from None


def values(
    trajectories: int = 8,
    states: int = 5,
    k: int = 9,
    width: int = 256,
    mean: int = MEAN,
    seed: int = 0,
) -> Work:
    """Monte Carlo values: `k` continuations of `states` step boundaries of each trajectory.

    Responses have `mean` tokens, before those that would reach `width` are cut.
    """
    rng = np.random.default_rng(seed)
    jobs = []
    for trajectory in range(trajectories):
        step = int(rng.integers(*STEPS, endpoint=True))
        room = max(1, width - SHORTEST)
        prompt = min(PROMPT, room // 2)
        for state in range(states):
            prefix = min(prompt + state * step, room)
            lengths = _lengths(rng, k, width, mean)
            jobs += [Job(trajectory, prefix, int(stop)) for stop in lengths]
    return Work(tuple(jobs), width)


def ordinary(prompts: int, samples: int, width: int = 256, mean: int = MEAN, seed: int = 0) -> Work:
    """Ordinary sampling: `samples` whole responses to each of `prompts` prompts."""
    rng = np.random.default_rng(seed)
    jobs = []
    for prompt in range(prompts):
        prefix = int(rng.integers(PROMPT * 3 // 5, PROMPT * 7 // 5, endpoint=True))
        lengths = _lengths(rng, samples, width, mean)
        jobs += [Job(prompt, min(prefix, width), int(stop)) for stop in lengths]
    return Work(tuple(jobs), width)


def _lengths(rng: np.random.Generator, count: int, width: int, mean: int) -> np.ndarray:
    sigma = math.sqrt(2 * math.log(MEAN / MEDIAN))
    drawn = np.round(rng.lognormal(math.log(mean * MEDIAN / MEAN), sigma, count))
    return np.clip(drawn, min(SHORTEST, width - 1), width - 1).astype(int)
