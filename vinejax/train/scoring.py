"""Scores of whole trajectories: log-probabilities, entropies, and the KV that vines grow from.

One pass gives PPO its old log-probabilities and the value phase its trunks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from vinejax import policy
from vinejax.sampler import Trunks, bucket
from vinejax.sampler.bank import empty_bank, rows_at_once, score_rows


class Scored(NamedTuple):
    """Host arrays of M sequences, padded to the longest; entry t belongs to token t."""

    logp: np.ndarray  # fp32 [M, T], nats, at the given temperature
    entropy: np.ndarray  # fp32 [M, T], nats
    finite: np.ndarray  # bool [M]
    tokens: int  # how many were scored, padding left out

    @staticmethod
    def joined(parts: "Sequence[Scored]") -> "Scored":
        """The sequences of all `parts`, which have one padded length."""
        return Scored(
            np.concatenate([p.logp for p in parts]),
            np.concatenate([p.entropy for p in parts]),
            np.concatenate([p.finite for p in parts]),
            sum(p.tokens for p in parts),
        )


def score(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    sequences: Sequence[np.ndarray],
    temperature: float,
    width: int,
    keep_cache: bool,
) -> tuple[Scored, policy.Cache | None]:
    """Scores sequences of at most `width` tokens; if wanted with KV, row m for sequence m."""
    count, width = len(sequences), bucket(width)
    rows = rows_at_once(model, width, count)
    padded = -(-count // rows) * rows
    tokens = Trunks.of(sequences).padded(padded, width)
    length = np.zeros(padded, np.int32)
    length[:count] = [len(s) for s in sequences]
    bank = empty_bank(model, padded, width) if keep_cache else None
    parts = []
    for start in range(0, padded, rows):
        part, bank = score_rows(
            weights,
            model,
            jnp.asarray(tokens[start : start + rows]),
            jnp.asarray(length[start : start + rows]),
            jnp.float32(temperature),
            bank,
            jnp.int32(start),
        )
        parts.append(part)
    logp, entropy, finite = (
        np.concatenate([np.asarray(getattr(p, name)) for p in parts])[:count]
        for name in ("logp", "entropy", "finite")
    )
    return Scored(logp, entropy, finite, int(length.sum())), bank
