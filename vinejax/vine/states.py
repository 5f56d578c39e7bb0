"""From steps in text to states in tokens, and on to the distinct prefixes that are sampled.

A response with n steps has the states s_0 (the prompt) to s_{n-1}; the terminal state is worth 0
and is never sampled. A token belongs to the step in which it starts, so a boundary inside a token
moves to that token's end; a step in which no token starts has no state of its own.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Steps:
    """The steps of one response, in tokens."""

    # int32 [n], first token of each step, counted from the response's start; starts[0] = 0
    starts: np.ndarray
    of_token: np.ndarray  # int32 [T], the step of each response token
    moved: int  # boundaries that fell inside a token

    @property
    def count(self) -> int:
        """Number of steps, n."""
        return len(self.starts)


def steps_of_tokens(boundaries: Sequence[int], char_starts: Sequence[int]) -> Steps:
    """Token steps from character boundaries [0, ..., len(response)] and where each token starts.

    `char_starts` holds each token's first character. Tokens from the text's end on (an
    end-of-sequence token, a cut-off stop string) belong to the last step. An empty response has no
    step; without boundaries inside, all tokens are one step.
    """
    at = np.asarray(char_starts, np.int64)
    inner = np.asarray(boundaries[1:-1], np.int64)
    if not len(at):
        return Steps(np.zeros(0, np.int32), np.zeros(0, np.int32), 0)
    step = np.searchsorted(inner, at, side="right")
    is_start = np.append(True, step[1:] != step[:-1])
    moved = int((~np.isin(inner, at)).sum())
    return _steps(is_start, moved)


def states_every(steps: Steps, spacing: int | None) -> Steps:
    """The steps themselves (None), or pieces of `spacing` tokens each in their place."""
    if spacing is None:
        return steps
    return _steps(np.arange(len(steps.of_token)) % spacing == 0, 0)


def _steps(is_start: np.ndarray, moved: int) -> Steps:
    starts = np.flatnonzero(is_start).astype(np.int32)
    return Steps(starts, (np.cumsum(is_start) - 1).astype(np.int32), moved)


@dataclass(frozen=True)
class Nodes:
    """The distinct prefixes of a batch of trajectories, and which of them each state is."""

    trajectory: np.ndarray  # int32 [P], one that has this prefix
    prefix_length: np.ndarray  # int32 [P], prompt included
    copy: np.ndarray  # int32 [P], numbers the nodes of a problem with equal tokens
    of_state: tuple[np.ndarray, ...]  # per trajectory: int32 [states], index of its node


def nodes_of(
    tokens: Sequence[np.ndarray],
    prompt_length: Sequence[int],
    steps: Sequence[Steps],
    problems: Sequence[str],
    *,
    deduplicate: bool = True,
    max_step: int | None = None,
) -> Nodes:
    """The states of every trajectory (prompt + response tokens), s_0 first, up to index `max_step`.

    With `deduplicate` states of equal tokens share a node, and so one estimate (as in the authors'
    code); without, each has its own, told apart by `copy`, and estimates are independent. States of
    different `problems` (their ids) never share one: what a text is worth depends on the answer
    that is wanted.
    """
    rows: list[tuple[int, int, int]] = []
    seen: dict[tuple[str, bytes], list[int]] = {}
    of_state = []
    columns = zip(tokens, prompt_length, steps, problems, strict=True)
    for m, (row, prompt, cut, problem) in enumerate(columns):
        own = []
        for start in cut.starts[: None if max_step is None else max_step + 1]:
            length = int(prompt + start)
            # A digest: the prefixes of all tokens of long responses would take gigabytes.
            prefix = hashlib.blake2b(np.asarray(row[:length], np.int32).tobytes(), digest_size=16)
            equal = seen.setdefault((problem, prefix.digest()), [])
            if not (deduplicate and equal):
                equal.append(len(rows))
                rows.append((m, length, len(equal) - 1))
            own.append(equal[-1])
        of_state.append(np.array(own, np.int32))
    fields = np.array(rows, np.int32).reshape(-1, 3).T
    return Nodes(*fields, of_state=tuple(of_state))
