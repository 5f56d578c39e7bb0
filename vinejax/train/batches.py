"""Batches of given sequences: which ones an update gets, and how they lie in arrays."""

from collections.abc import Sequence

import numpy as np

from vinejax.sampler import Trunks, bucket


def shuffled(count: int, size: int, step: int, seed: Sequence[int]) -> list[int]:
    """The `size` examples of update number `step`, counted from 0.

    They are a stretch of the endless row of shuffled epochs, whose order follows from `seed`.
    """
    at = range(step * size, (step + 1) * size)
    orders = {
        epoch: np.random.default_rng([*seed, epoch]).permutation(count)
        for epoch in {i // count for i in at}
    }
    return [int(orders[i // count][i % count]) for i in at]


def padded(sequences: Sequence[np.ndarray], prompt_lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Arrays [N, T] of tokens and of what is response, [N] of lengths; index t means token t."""
    length = np.array([len(s) for s in sequences], np.int32)
    first = np.array(prompt_lengths, np.int32)
    width = bucket(int(length.max()))
    at = np.arange(width)
    return {
        "tokens": Trunks.of(sequences).padded(len(sequences), width),
        "length": length,
        "is_response": (at >= first[:, None]) & (at < length[:, None]),
    }
