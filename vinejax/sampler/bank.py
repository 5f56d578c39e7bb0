"""The bank: KV of whole trunks, computed a few rows at a time to bound attention's memory."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vinejax import policy
from vinejax.sampler.decode import Cache, empty_cache
from vinejax.sampler.records import MIN_BUCKET, Trunks, bucket, power_of_two

ATTENTION_BYTES = 1 << 30  # fp32 attention scores of one layer that may live at once
TOKENS = 1 << 14  # that go through the model together: enough for any device to be busy


def rows_at_once(model: policy.LlamaConfig, width: int, count: int) -> int:
    """How many rows of `width` tokens go through the model together."""
    if model.attention == "xla":
        most = max(1, ATTENTION_BYTES // (4 * model.heads * width * width))
    else:  # which holds no scores of attention
        most = max(1, TOKENS // width)
    return min(count, 1 << (most.bit_length() - 1))


class Group(NamedTuple):
    """Sequences of about the same length, that go through the model together."""

    members: np.ndarray  # int64 [n]
    rows: int  # n or more; those beyond the members are empty
    width: int

    def filled(self, column: np.ndarray, outside: int = 0) -> np.ndarray:
        """The members' entries of a column [N, ...], and `outside` in the rows beyond them."""
        own = column[self.members]
        own = own[:, : self.width] if own.ndim > 1 else own
        shape = (self.rows - len(own), *own.shape[1:])
        return np.concatenate([own, np.full(shape, outside, own.dtype)])


def groups(length: np.ndarray, model: policy.LlamaConfig, width: int) -> Iterator[Group]:
    """All sequences, longest first, in groups.

    Widths are sixteenths of `width`, the bank's: little padding, and few shapes to compile.
    """
    order = np.argsort(-length, kind="stable")
    step, start = max(MIN_BUCKET, width // 16), 0
    while start < len(order):
        own = min(width, -(-int(length[order[start]]) // step) * step)
        most = min(rows_at_once(model, own, power_of_two(len(order))), max(1, TOKENS // own))
        members = order[start : start + (1 << (most.bit_length() - 1))]
        yield Group(members, power_of_two(len(members)), own)
        start += len(members)


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
    tokens, length = chosen.padded(count, width), np.zeros(count, np.int32)
    length[: len(members)] = chosen.length
    bank = empty_bank(model, count, width)
    every = np.arange(count)
    for group in groups(length[: len(members)], model, width):
        rows = (group.filled(tokens), group.filled(length), group.filled(every, outside=count))
        bank = _fill_rows(weights, model, *rows[:2], bank, rows[2])
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
    bank: policy.Cache | None = None,
    place: Int[Array, "rows"] | None = None,
    segments: Int[Array, "rows T"] | None = None,
    at: Int[Array, "rows N"] | None = None,
) -> tuple[policy.Scores, policy.Cache | None]:
    """Scores of some rows; with a bank also the bank, their KV in its rows `place`.

    A place outside the bank is left out. `segments` and `at` as in `policy.score`.
    """
    keep = bank is not None
    scores, cache = policy.score(
        weights, model, tokens, length, temperature, keep, segments=segments, at=at
    )
    if bank is not None and cache is not None and place is not None:
        bank = _put(bank, cache, place)
    return scores, bank


@partial(jax.jit, static_argnames=("model",), donate_argnames=("bank",))
def _fill_rows(
    weights: policy.DecodeWeights,
    model: policy.LlamaConfig,
    tokens: Int[Array, "rows T"],
    length: Int[Array, "rows"],
    bank: policy.Cache,
    place: Int[Array, "rows"],
) -> policy.Cache:
    # The scores are not asked for, so the compiler leaves the head out.
    _, cache = policy.score(weights, model, tokens, length, keep_cache=True)
    return bank if cache is None else _put(bank, cache, place)


def _put(bank: policy.Cache, rows: policy.Cache, place: Int[Array, "rows"]) -> policy.Cache:
    """The bank with rows that may be shorter than its own; the rest of those is 0."""

    def put(to: Array, of: Array) -> Array:
        missing = [(0, t - o) for t, o in zip(to.shape[1:], of.shape[1:], strict=True)]
        return to.at[place].set(jnp.pad(of, [(0, 0), *missing]), mode="drop")

    return jax.tree.map(put, bank, rows)
