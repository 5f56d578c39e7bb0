"""Stop strings found in token sequences, wherever they lie in the tokens.

A stop string may begin inside a token, end inside one, or be spelled by other tokens than its own
encoding: byte-level BPEs write ".\\n\\n\\nProblem:" as ".\\n\\n\\n", "Problem", ":", where the ids
of "\\n\\n\\nProblem:" never occur. So the automaton of Aho and Corasick (1975) runs on bytes, and
is compiled into a table with one row a state and one column a token: a step of the sampler is one
look-up, `state = table[state, token]`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StopTable:
    """table: int32 [states, tokens], the state after a token; start = 0.

    matched: the state in which a stop string has been completed. It is absorbing. Without stop
    strings there is one state and `matched` is -1, which is never reached.
    """

    table: np.ndarray
    matched: int
    start: int = 0

    @staticmethod
    def build(stops: tuple[str, ...], token_bytes: Sequence[bytes]) -> "StopTable":
        """Compiles `stops` for a vocabulary; tokens without bytes (special ones) change nothing."""
        if not stops:
            return StopTable(np.zeros((1, len(token_bytes)), np.int32), matched=-1)
        by_byte, matched = _automaton([_encoded(stop) for stop in stops])
        return StopTable(_by_token(by_byte, token_bytes), matched)

    def states(self, ids: Sequence[int], state: int = 0) -> list[int]:
        """The state after each of `ids`, from `state`."""
        out = []
        for token in ids:
            state = int(self.table[state, token])
            out.append(state)
        return out

    def advance(self, ids: Sequence[int], state: int = 0) -> int:
        """The state after all of `ids`, from `state`."""
        return self.states(ids, state)[-1] if len(ids) else state


def find(text: str, stops: tuple[str, ...]) -> int | None:
    """The index at which the stop string that is completed first begins; None if there is none.

    Of several that end at the same character the longest counts, so that `text[:find(...)]` holds
    no part of a stop string.
    """
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return min(found)[1] if found else None


def _encoded(stop: str) -> bytes:
    if not stop:
        raise ValueError("a stop string must not be empty")
    return stop.encode("utf-8")


def _automaton(patterns: list[bytes]) -> tuple[np.ndarray, int]:
    """[states, 256] transitions over bytes, and the matched state, shared by all patterns.

    States are the proper prefixes of the patterns, the empty one (0) first.
    """
    nodes: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for pattern in patterns:
        node = 0
        for value in pattern:
            if value not in nodes[node]:
                nodes.append({})
                nodes[node][value] = len(nodes) - 1
            node = nodes[node][value]
        ends.add(node)

    moves = np.zeros((len(nodes), 256), np.int32)
    fallback = [0] * len(nodes)
    queue = deque([0])
    while queue:
        node = queue.popleft()
        if node:
            moves[node] = moves[fallback[node]]
            # A pattern that is a suffix of this prefix has been completed here too.
            if fallback[node] in ends:
                ends.add(node)
        for value, child in nodes[node].items():
            fallback[child] = int(moves[node, value]) if node else 0
            moves[node, value] = child
            queue.append(child)

    kept = [node for node in range(len(nodes)) if node not in ends]
    matched = len(kept)
    renamed = np.full(len(nodes), matched, np.int32)
    renamed[kept] = np.arange(matched)
    final = np.full((1, 256), matched, np.int32)
    return np.concatenate([renamed[moves[kept]], final]), matched


def _by_token(by_byte: np.ndarray, token_bytes: Sequence[bytes]) -> np.ndarray:
    """[states, tokens]: the byte transitions composed along each token, all tokens at once."""
    lengths = np.array([len(piece) for piece in token_bytes])
    flat = np.frombuffer(b"".join(token_bytes), np.uint8)
    first = np.cumsum(lengths) - lengths
    table = np.tile(np.arange(len(by_byte), dtype=np.int32)[:, None], (1, len(lengths)))
    for at in range(int(lengths.max(initial=0))):
        active = np.nonzero(lengths > at)[0]
        table[:, active] = by_byte[table[:, active], flat[first[active] + at]]
    return table
