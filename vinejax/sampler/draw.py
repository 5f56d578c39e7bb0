"""Drawing one token a slot from logits: temperature, top-k, top-p, by inverse CDF from one uniform.

A draw depends on its own logits and its own uniform only, so it is the same in any batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from vinejax.sampler.records import Settings

CANDIDATES = 64  # most nuclei fit in the 64 most likely tokens; the others take the exact slow path
GROUP = 16  # tokens whose maximum stands for them in the search for candidates
BLOCK = 128  # tokens in a block of the two-level inverse CDF
MASKED = -1e30  # finite, so that no inf - inf arises; exp gives exactly 0


class Draw(NamedTuple):
    """One token a slot. `is_finite` is False where the logits held a NaN or an infinity."""

    token: Int[Array, "B"]
    logprob: Float[Array, "B"]  # nats, under the truncated, renormalised distribution
    logprob_full: Float[Array, "B"]  # nats, under the temperature alone
    is_finite: Bool[Array, "B"]


def draw(
    logits: Float[Array, "B V"], uniform: Float[Array, "B"], settings: Settings, num_tokens: int
) -> Draw:
    """Draws a token below `num_tokens` from each row of fp32 logits, `uniform` being in [0, 1)."""
    logits = logits.astype(jnp.float32)
    if num_tokens < logits.shape[-1]:
        logits = jnp.where(jnp.arange(logits.shape[-1]) < num_tokens, logits, MASKED)
    scaled = logits / settings.score_temperature
    log_norm = jax.nn.logsumexp(scaled, axis=-1)
    limit = min(settings.top_k or num_tokens, num_tokens)
    if settings.temperature == 0:
        token, log_kept = jnp.argmax(scaled, axis=-1), None
    elif limit == num_tokens and settings.top_p >= 1:
        token, log_kept = _inverse_cdf(jnp.exp(scaled - log_norm[:, None]), uniform), log_norm
    else:
        count = min(max(CANDIDATES, settings.top_k), scaled.shape[-1])
        token, log_kept = _draw_truncated(scaled, log_norm, uniform, settings.top_p, limit, count)
    token = token.astype(jnp.int32)
    chosen = jnp.take_along_axis(scaled, token[:, None], axis=-1)[:, 0]
    logprob = jnp.zeros_like(chosen) if log_kept is None else chosen - log_kept
    return Draw(token, logprob, chosen - log_norm, jnp.isfinite(log_norm) & jnp.isfinite(chosen))


def _inverse_cdf(probs: Float[Array, "B V"], uniform: Float[Array, "B"]) -> Int[Array, "B"]:
    """The first token, by id, at which the cumulative probability exceeds the uniform."""
    size = probs.shape[-1]
    if size <= 4 * BLOCK:
        return _first_above(probs, uniform * jnp.sum(probs, axis=-1))
    probs = jnp.pad(probs, ((0, 0), (0, -size % BLOCK))).reshape(len(probs), -1, BLOCK)
    blocks = probs.sum(axis=-1)
    target = uniform * jnp.sum(blocks, axis=-1)
    block = _first_above(blocks, target)
    before = jnp.where(jnp.arange(blocks.shape[-1]) < block[:, None], blocks, 0).sum(axis=-1)
    inside = jnp.take_along_axis(probs, block[:, None, None], axis=1)[:, 0]
    return block * BLOCK + _first_above(inside, target - before)


def _first_above(mass: Float[Array, "B n"], target: Float[Array, "B"]) -> Int[Array, "B"]:
    """Index of the first cell whose cumulative mass exceeds `target`.

    If rounding leaves none, it is the last cell with mass.
    """
    index = jnp.arange(mass.shape[-1])
    above = (jnp.cumsum(mass, axis=-1) > target[:, None]) & (mass > 0)
    last = jnp.max(jnp.where(mass > 0, index, 0), axis=-1)
    return jnp.where(above.any(axis=-1), jnp.argmax(above, axis=-1), last)


def _draw_truncated(
    scaled: Float[Array, "B V"],
    log_norm: Float[Array, "B"],
    uniform: Float[Array, "B"],
    top_p: float,
    limit: int,
    count: int,
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Token and log of the kept mass (as a log-normaliser) under top-k (`limit`) and top-p.

    The nucleus is looked for among the `count` most likely candidates. A row whose candidates do
    not hold it is drawn by `_draw_nucleus`, in a loop of zero or one trips: the work is done only
    in steps that need it, and a row's result never depends on the other rows.
    """
    values, ids = _largest(scaled, count)
    token, log_kept, enough = _draw_sorted(values, ids, log_norm, uniform, top_p, limit)
    if count >= limit:
        return token, log_kept

    def redraw(carry: _Carry) -> _Carry:
        _, token, log_kept = carry
        probs = jnp.exp(scaled - log_norm[:, None])
        wide_token, wide_mass = _draw_nucleus(probs, uniform, top_p, ~enough)
        token = jnp.where(enough, token, wide_token)
        log_kept = jnp.where(enough, log_kept, log_norm + jnp.log(wide_mass))
        return jnp.array(False), token, log_kept

    start = (~enough.all(), token, log_kept)
    _, token, log_kept = lax.while_loop(lambda carry: carry[0], redraw, start)
    return token, log_kept


def _largest(
    scaled: Float[Array, "B V"], count: int
) -> tuple[Float[Array, "B n"], Int[Array, "B n"]]:
    """What `lax.top_k` gives, equal values by id, but from a small part of a large vocabulary.

    The n largest tokens lie in the n groups with the largest maxima: each of those maxima comes
    before every token of another group, ties included. So neither pass sorts the vocabulary, which
    is what `top_k` does on a GPU.
    """
    size = scaled.shape[-1]
    if size < 2 * GROUP * count:
        return lax.top_k(scaled, count)
    groups = jnp.pad(scaled, ((0, 0), (0, -size % GROUP)), constant_values=-jnp.inf)
    groups = groups.reshape(len(scaled), -1, GROUP)
    _, chosen = lax.top_k(groups.max(axis=-1), count)
    chosen = jnp.sort(chosen, axis=-1)
    kept = jnp.take_along_axis(groups, chosen[..., None], axis=1).reshape(len(scaled), -1)
    values, place = lax.top_k(kept, count)
    group = jnp.take_along_axis(chosen, place // GROUP, axis=-1)
    return values, group * GROUP + place % GROUP


_Carry = tuple[Bool[Array, ""], Int[Array, "B"], Float[Array, "B"]]


def _draw_nucleus(
    probs: Float[Array, "B V"], uniform: Float[Array, "B"], top_p: float, where: Bool[Array, "B"]
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Token and kept mass of nuclei of any size, without a sort; anything in rows not in `where`.

    The least probability that is kept is found by bisection of its bit pattern, which orders
    non-negative floats as their values do; then, of the tokens that have just that one, the last
    id that is kept.
    """
    bits = lax.bitcast_convert_type(probs, jnp.int32)
    ids = jnp.arange(probs.shape[-1])
    top = jnp.where(where, bits.max(axis=-1) + 1, 1)
    least, _ = _bisect(
        lambda cut: jnp.where(bits >= cut[:, None], probs, 0).sum(axis=-1) >= top_p,
        jnp.zeros_like(top),
        top,
    )
    is_tie = bits == least[:, None]
    above = jnp.where(bits > least[:, None], probs, 0)
    mass, one = above.sum(axis=-1), lax.bitcast_convert_type(least, jnp.float32)
    ties = is_tie.sum(axis=-1)
    # Smallest number of them that reaches top_p: j with mass + (j - 1) one < top_p.
    wanted = jnp.ceil((top_p - mass) / jnp.where(one > 0, one, 1))
    kept_ties = jnp.clip(wanted, 1, ties).astype(jnp.int32)
    all_tokens = jnp.full_like(kept_ties, probs.shape[-1])
    _, end = _bisect(
        lambda end: (is_tie & (ids < end[:, None])).sum(axis=-1) < kept_ties,
        jnp.where(kept_ties < ties, 0, all_tokens - 1),
        all_tokens,
    )
    kept = jnp.where(is_tie & (ids < end[:, None]), probs, above)
    return _inverse_cdf(kept, uniform), kept.sum(axis=-1)


def _bisect(
    holds: Callable[[Int[Array, "B"]], Bool[Array, "B"]],
    low: Int[Array, "B"],
    high: Int[Array, "B"],
) -> tuple[Int[Array, "B"], Int[Array, "B"]]:
    """The last number from `low` on for which `holds` is true, and the one after it, in each row.

    It is true up to some number below `high`, and false from there on; `low` and `high` are not
    asked for.
    """

    def halve(ends: tuple[Int[Array, "B"], Int[Array, "B"]]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) // 2
        up = holds(middle) | (middle == low)
        return jnp.where(up, middle, low), jnp.where(up, high, middle)

    return lax.while_loop(lambda ends: (ends[1] - ends[0] > 1).any(), halve, (low, high))


def _draw_sorted(
    values: Float[Array, "B n"],
    ids: Int[Array, "B n"],
    log_norm: Float[Array, "B"],
    uniform: Float[Array, "B"],
    top_p: float,
    limit: int,
) -> tuple[Int[Array, "B"], Float[Array, "B"], Bool[Array, "B"]]:
    """Draws from tokens sorted by falling probability; `enough`: they hold the whole nucleus."""
    is_allowed = jnp.arange(values.shape[-1]) < limit
    if limit <= values.shape[-1]:
        log_norm = jax.nn.logsumexp(jnp.where(is_allowed, values, MASKED), axis=-1)
    probs = jnp.where(is_allowed, jnp.exp(values - log_norm[:, None]), 0)
    before = jnp.cumsum(probs, axis=-1) - probs
    is_kept = (before < top_p) & is_allowed
    is_kept = is_kept.at[:, 0].set(True)
    kept = jnp.where(is_kept, probs, 0)
    mass = kept.sum(axis=-1)
    place = _first_above(kept, uniform * mass)
    token = jnp.take_along_axis(ids, place[:, None], axis=-1)[:, 0]
    enough = (probs.sum(axis=-1) >= top_p) | (limit <= values.shape[-1])
    return token.astype(jnp.int32), log_norm + jnp.log(mass), enough
