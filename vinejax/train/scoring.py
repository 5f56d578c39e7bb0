"""Scores of whole trajectories: log-probabilities, entropies, and the KV that vines grow from.

One pass gives PPO its old log-probabilities and the value phase its trunks. It runs on a few rows
at a time, since attention scores take rows x heads x length^2, and writes into a bank that holds
the wave.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from vinejax import policy
from vinejax.sampler import Trunks, bucket

ATTENTION_BYTES = 1 << 30  # fp32 attention scores of one layer that may live at once


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
    rows = _rows_at_once(model, width, count)
    padded = -(-count // rows) * rows
    tokens = Trunks.of(sequences).padded(padded, width)
    length = np.zeros(padded, np.int32)
    length[:count] = [len(s) for s in sequences]
    bank = _empty_bank(model, padded, width) if keep_cache else None
    parts = []
    for start in range(0, padded, rows):
        part, bank = _score_rows(
            weights,
            model,
            tokens[start : start + rows],
            length[start : start + rows],
            temperature,
            bank,
            start,
        )
        parts.append(part)
    logp, entropy, finite = (
        np.concatenate([np.asarray(getattr(p, name)) for p in parts])[:count]
        for name in ("logp", "entropy", "finite")
    )
    return Scored(logp, entropy, finite, int(length.sum())), bank


def _rows_at_once(model: policy.LlamaConfig, width: int, count: int) -> int:
    most = max(1, ATTENTION_BYTES // (4 * model.heads * width * width))
    return min(count, 1 << (most.bit_length() - 1))


@partial(jax.jit, static_argnames=("model", "rows", "width"))
def _empty_bank(model: policy.LlamaConfig, rows: int, width: int) -> policy.Cache:
    dtype = jnp.dtype(model.compute_dtype)
    keys = [
        jnp.zeros((rows, model.kv_heads, model.head_dim, width), dtype) for _ in range(model.layers)
    ]
    values = [
        jnp.zeros((rows, model.kv_heads, width, model.head_dim), dtype) for _ in range(model.layers)
    ]
    return keys, values


@partial(jax.jit, static_argnames=("model",), donate_argnames=("bank",))
def _score_rows(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    tokens: Int[Array, "rows T"],
    length: Int[Array, "rows"],
    temperature: Float[Array, ""],
    bank: policy.Cache | None,
    start: Int[Array, ""],
) -> tuple[policy.Scores, policy.Cache | None]:
    """Scores of some rows, and the bank with their KV from row `start` on."""
    scores, cache = policy.score(
        weights, model, tokens, length, temperature, keep_cache=bank is not None
    )
    if bank is not None:
        bank = jax.tree.map(
            lambda to, of: lax.dynamic_update_slice_in_dim(to, of, start, 0), bank, cache
        )
    return scores, bank
