"""Scores of whole trajectories: log-probabilities, entropies, and the KV that vines grow from.

One pass gives PPO its old log-probabilities and the value phase its trunks.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from vinejax import policy
from vinejax.sampler.bank import empty_bank, groups, rows_at_once, score_rows
from vinejax.train import batches


class Scored(NamedTuple):
    """Host arrays of M sequences, padded to the longest; entry t belongs to token t."""

    logp: np.ndarray  # fp32 [M, T], nats, at the given temperature
    entropy: np.ndarray  # fp32 [M, T], nats
    finite: np.ndarray  # bool [M]
    tokens: int  # how many there are, padding left out
    processed: int  # padding included

    @staticmethod
    def joined(parts: "Sequence[Scored]") -> "Scored":
        """The sequences of all `parts`, which have one padded length."""
        return Scored(
            np.concatenate([p.logp for p in parts]),
            np.concatenate([p.entropy for p in parts]),
            np.concatenate([p.finite for p in parts]),
            sum(p.tokens for p in parts),
            sum(p.processed for p in parts),
        )


def score(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    sequences: Sequence[np.ndarray],
    temperature: float,
    width: int,
    keep_cache: bool,
    prompt_lengths: Sequence[int] | None = None,
) -> tuple[Scored, policy.Cache | None]:
    """Scores sequences of at most `width` tokens; if wanted with KV, row m for sequence m.

    With `prompt_lengths` the tokens of the prompts are not scored: their entries are 0.
    """
    first = [0] * len(sequences) if prompt_lengths is None else prompt_lengths
    rows = batches.padded(sequences, first, width)
    chosen = partial(score_rows, weights, model, temperature=jnp.float32(temperature))
    if keep_cache:
        return _with_cache(chosen, model, rows)
    return _packed(chosen, model, rows), None


def _packed(chosen: Callable, model: policy.LlamaConfig, rows: dict[str, np.ndarray]) -> Scored:
    """Scores of sequences that share rows."""
    count, width = rows["tokens"].shape
    most = rows_at_once(model, width, count)
    placed = batches.place(rows["length"], width, most)
    arrays = batches.packed(rows, placed)
    names = ("tokens", "length", "segments", "at")
    parts = []
    for start in range(0, placed.rows, most):
        part = {name: jnp.asarray(arrays[name][start : start + most]) for name in names}
        parts.append(chosen(**part)[0])
    logp, entropy, finite = (
        np.concatenate([np.asarray(getattr(p, name)) for p in parts])
        for name in ("logp", "entropy", "finite")
    )
    length = rows["length"]
    return Scored(
        batches.unpacked(logp, placed, length),
        batches.unpacked(entropy, placed, length),
        finite[placed.row],
        int(length.sum()),
        arrays["tokens"].size,
    )


def _with_cache(
    chosen: Callable, model: policy.LlamaConfig, rows: dict[str, np.ndarray]
) -> tuple[Scored, policy.Cache]:
    """Scores and KV; sequences of about the same length go through the model together."""
    (count, width), length = rows["tokens"].shape, rows["length"]
    bank = empty_bank(model, count, width)
    found, processed = [], 0
    for group in groups(length, model, width):
        scores, bank = chosen(
            tokens=jnp.asarray(group.filled(rows["tokens"])),
            length=jnp.asarray(group.filled(length)),
            at=jnp.asarray(batches.indices(group.filled(rows["is_response"]))),
            bank=bank,
            place=jnp.asarray(group.filled(np.arange(count), outside=count)),
        )
        processed += group.rows * group.width
        found.append((group.members, scores))
    logp, entropy = (np.zeros((count, width), np.float32) for _ in range(2))
    finite = np.zeros(count, bool)
    for members, scores in found:
        own = scores.logp.shape[1]
        logp[members, :own] = np.asarray(scores.logp)[: len(members)]
        entropy[members, :own] = np.asarray(scores.entropy)[: len(members)]
        finite[members] = np.asarray(scores.finite)[: len(members)]
    return Scored(logp, entropy, finite, int(length.sum()), processed), bank
