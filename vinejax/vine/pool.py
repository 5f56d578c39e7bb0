"""Pooled values: whatever passes through a state is a sample of that state's value.

A rollout that reaches a later state token by token goes on from there as the policy goes on from
there, and so does another trajectory of the problem. Each counts at every state behind the place
where it was launched. What is left out is the return of the trajectory that is judged, so one state
may have different values for different trajectories. Given how many samples a state has, which
follows from tokens before it alone, they are independent draws of its return: the mean is unbiased,
provided that

* all of them may go on to the same last token, or a return from before a state would come from a
  shorter budget than the state's own (`values.budget=remaining`), and
* where a trajectory is cut into steps does not depend on what comes after the cut. (Otherwise how
  often a state is sampled could depend on how well the trajectories end that pass it.)
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from vinejax.vine.states import Nodes
from vinejax.vine.values import Values, largest_error

# Below it a variance is rounding: the returns are equal.
_ROUNDING = 1e-12

Branches = dict[int, dict[bytes, int]]  # tokens to a next state, by their number and themselves


class PrefixTree:
    """Which states a sequence of tokens passes through: exact, in time linear in its tokens.

    `nodes` are distinct (`nodes_of` with `deduplicate`), `tokens` and `problems` those of the
    trajectories from which they were made.
    """

    def __init__(self, nodes: Nodes, tokens: Sequence[np.ndarray], problems: Sequence[str]):
        self._below: dict[int | str, Branches] = defaultdict(lambda: defaultdict(dict))
        # The last state that each trajectory is known to pass, or its problem, and how far that is.
        last: list[tuple[int | str, int]] = [(problem, 0) for problem in problems]
        # From short to long: then what lies between a state and the start is there before it.
        for node in np.argsort(nodes.prefix_length, kind="stable").tolist():
            m, end = int(nodes.trajectory[node]), int(nodes.prefix_length[node])
            above, start = last[m]
            for passed in self._descend(above, tokens[m][start:end]):
                above, start = passed, int(nodes.prefix_length[passed])
            self._below[above][end - start][_key(tokens[m][start:end])] = node
            last[m] = node, end

    def of_problem(self, problem: str, tokens: np.ndarray) -> list[int]:
        """The states that a whole sequence of a problem, prompt included, passes through."""
        return self._descend(problem, tokens)

    def after(self, node: int, tokens: np.ndarray) -> list[int]:
        """The state `node`, and those that a continuation of it passes through."""
        return [node, *self._descend(node, tokens)]

    def _descend(self, place: int | str, tokens: np.ndarray) -> list[int]:
        found, start = [], 0
        while (reached := self._next(place, tokens[start:])) is not None:
            place, length = reached
            start += length
            found.append(place)
        return found

    def _next(self, place: int | str, tokens: np.ndarray) -> tuple[int, int] | None:
        """The next state on the way, and how many tokens lead there; there is one at most."""
        for length, branches in self._below.get(place, {}).items():
            node = branches.get(_key(tokens[:length]))
            if node is not None:
                return node, length
        return None


class Pool:
    """Which samples count at which of P states, and the values that follow.

    Samples are numbered from 0 as they come: first the trajectories, then the rollouts.
    """

    def __init__(self, states: int):
        self.count = np.zeros(states, np.int64)  # samples at each state, nothing left out
        self._state: list[int] = []
        self._sample: list[int] = []
        self._samples = 0

    def add(self, passed: Sequence[int]) -> None:
        """The next sample, and the states that it passes through."""
        self.count[passed] += 1
        self._state += passed
        self._sample += [self._samples] * len(passed)
        self._samples += 1

    def values(
        self,
        returns: Float[np.ndarray, "S"],
        truncated: Bool[np.ndarray, "S"],
        state: Int[np.ndarray, "N"],
        own: Int[np.ndarray, "N"],
        lowest: float = 0.0,
    ) -> Values:
        """Estimates for N states, each without the sample `own`, which passes through it.

        `returns` are the rewards of all samples, `lowest` and 1 their bounds. A state without any
        other sample has the value 0 and the largest standard error.
        """
        returns, truncated = np.asarray(returns, np.float64), np.asarray(truncated, np.float64)
        at, sample = np.array(self._state, np.int64), np.array(self._sample, np.int64)
        total, squares, cut = (
            np.bincount(at, weight[sample], len(self.count))[state] - weight[own]
            for weight in (returns, returns**2, truncated)
        )
        count = self.count[state] - 1
        divisor = np.maximum(count, 1)
        mean = total / divisor
        variance = (squares - count * mean**2) / np.maximum(count - 1, 1)
        variance = np.where(variance < _ROUNDING, 0, variance)
        stderr = np.where(count > 1, np.sqrt(variance / divisor), largest_error(lowest))
        return Values(
            mean.astype(np.float32),
            stderr.astype(np.float32),
            (cut / divisor).astype(np.float32),
            count,
        )


def _key(tokens: np.ndarray) -> bytes:
    return np.asarray(tokens, np.int32).tobytes()
