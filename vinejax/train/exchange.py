"""What processes tell each other of their shares: scores and measured values, as NumPy columns."""

from collections.abc import Sequence

import numpy as np

from vinejax import processes, vine
from vinejax.grading import Faults
from vinejax.sampler import Counters, bucket
from vinejax.train.scoring import Scored
from vinejax.train.shards import counted, counters_of, sum_of
from vinejax.train.vines import Continuation, Measured


def all_scores(parts: Sequence[Scored], width: int) -> Scored:
    """The scores of all sequences, from those of this process's shards; `width` as in `score`."""
    own = Scored.joined([_no_scores(bucket(width)), *parts])
    if processes.count() == 1:
        return own
    counts = np.array([[own.tokens, own.processed]])
    columns = {"logp": own.logp, "entropy": own.entropy, "finite": own.finite, "counts": counts}
    found = processes.join(columns)
    tokens, processed = found["counts"].sum(axis=0).tolist()
    return Scored(found["logp"], found["entropy"], found["finite"], tokens, processed)


def all_values(waves: Sequence[Measured]) -> Measured:
    """The values of all trajectories, from those of this process's waves."""
    own = _joined([_no_values(), *waves])
    if processes.count() == 1:
        return own
    nodes = processes.join(own.nodes._asdict())
    columns = {
        "rollouts": own.rollouts,
        "left_out": np.array([own.left_out]),
        "lengths": np.array([len(values) for values in own.values], np.int64),
        "values": np.concatenate([np.zeros(0, np.float32), *own.values]),
    }
    found = processes.join(columns)
    return Measured(
        vine.Values(**nodes),
        found["rollouts"],
        int(found["left_out"].sum()),
        np.split(found["values"], np.cumsum(found["lengths"])[:-1]),
        _all_continuations(own.continuations),
    )


def all_counters(parts: Sequence[Counters]) -> Counters:
    """What sampling did everywhere, from what it did in this process."""
    return counters_of(processes.join({"counters": counted(sum_of(parts))})["counters"])


def all_faults(own: Faults) -> Faults:
    """What graders failed on everywhere, from what they failed on in this process."""
    return Faults.total(Faults(*told) for told in processes.tell(own))


def _no_scores(width: int) -> Scored:
    nothing = np.zeros((0, width), np.float32)
    return Scored(nothing, nothing, np.zeros(0, bool), 0, 0)


def _no_values() -> Measured:
    nothing, none = np.zeros(0, np.float32), np.zeros(0, np.int64)
    return Measured(vine.Values(nothing, nothing, nothing, none), none, 0, [], {})


def _joined(waves: Sequence[Measured]) -> Measured:
    columns = zip(*(wave.nodes for wave in waves), strict=True)
    return Measured(
        vine.Values(*(np.concatenate(column) for column in columns)),
        np.concatenate([wave.rollouts for wave in waves]),
        sum(wave.left_out for wave in waves),
        [values for wave in waves for values in wave.values],
        {m: own for wave in waves for m, own in wave.continuations.items()},
    )


def _all_continuations(
    own: dict[int, list[list[Continuation]]],
) -> dict[int, list[list[Continuation]]]:
    rows = [[m, [[[c.reward, c.text] for c in at] for at in states]] for m, states in own.items()]
    return {
        m: [[Continuation(*c) for c in at] for at in states]
        for told in processes.tell(rows)
        for m, states in told
    }
