"""The bank: KV of whole trunks, computed a few rows at a time to bound attention's memory."""

from functools import partial

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from vinejax import policy
from vinejax.sampler.decode import Cache, empty_cache
from vinejax.sampler.records import Trunks, bucket

ATTENTION_BYTES = 1 << 30  # fp32 attention scores of one layer that may live at once


def rows_at_once(model: policy.LlamaConfig, width: int, count: int) -> int:
    """How many rows of `width` tokens go through the model together."""
    most = max(1, ATTENTION_BYTES // (4 * model.heads * width * width))
    return min(count, 1 << (most.bit_length() - 1))


def prefill(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    trunks: Trunks,
    members: np.ndarray,
    count: int,
) -> Cache:
    """The KV of the trunks `members`, as the first rows of a bank of `count`."""
    chosen = Trunks.of([trunks.tokens[m] for m in members])
    width = bucket(int(chosen.length.max()))
    rows = rows_at_once(model, width, count)
    padded = -(-count // rows) * rows
    tokens, length = chosen.padded(padded, width), np.zeros(padded, np.int32)
    length[: len(members)] = chosen.length
    bank = empty_bank(model, padded, width)
    for start in range(0, len(members), rows):
        part = slice(start, start + rows)
        bank = _fill_rows(weights, model, tokens[part], length[part], bank, start)
    return Cache(*bank)


@partial(jax.jit, static_argnames=("model", "rows", "width"))
def empty_bank(model: policy.LlamaConfig, rows: int, width: int) -> policy.Cache:
    """KV of `rows` sequences of `width` tokens, all zero."""
    keys, values = empty_cache(model, rows, width)
    return keys, values


@partial(jax.jit, static_argnames=("model",), donate_argnames=("bank",))
def score_rows(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    tokens: Int[Array, "rows T"],
    length: Int[Array, "rows"],
    temperature: Float[Array, ""],
    bank: policy.Cache | None,
    start: Int[Array, ""],
) -> tuple[policy.Scores, policy.Cache | None]:
    """Scores of some rows, and the bank with their KV from row `start` on."""
    keep = bank is not None
    scores, cache = policy.score(weights, model, tokens, length, temperature, keep_cache=keep)
    if bank is not None and cache is not None:
        bank = _put(bank, cache, start)
    return scores, bank


@partial(jax.jit, static_argnames=("model",), donate_argnames=("bank",))
def _fill_rows(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    tokens: Int[Array, "rows T"],
    length: Int[Array, "rows"],
    bank: policy.Cache,
    start: Int[Array, ""],
) -> policy.Cache:
    # The scores are not asked for, so the compiler leaves the head out.
    _, cache = policy.score(weights, model, tokens, length, keep_cache=True)
    return bank if cache is None else _put(bank, cache, start)


def _put(bank: policy.Cache, rows: policy.Cache, start: Int[Array, ""]) -> policy.Cache:
    return jax.tree.map(
        lambda to, of: lax.dynamic_update_slice_in_dim(to, of, start, 0), bank, rows
    )
