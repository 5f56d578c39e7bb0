"""The jitted loop: slots take jobs, rows take trunks from the bank (`supply`), nobody waits.

What was drawn goes to a log, one line a step, that the host reads afterwards: no slot writes to a
place of its own, so there is no scatter. Letters as in `state`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from vinejax import policy
from vinejax.arrays import Finish
from vinejax.sampler import decode
from vinejax.sampler.decode import Cache
from vinejax.sampler.draw import draw
from vinejax.sampler.records import Layout, Settings
from vinejax.sampler.state import (
    ACTIVE,
    IDLE,
    PARKED,
    Log,
    Queue,
    Report,
    State,
    Stop,
    Table,
    empty_log,
)
from vinejax.sampler.supply import supply

_Carry = tuple[State, Log, Int[Array, ""]]


@partial(jax.jit, static_argnames=("config", "settings", "layout"), donate_argnames=("state",))
def run_chunk(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    settings: Settings,
    layout: Layout,
    bank: Cache,
    queue: Queue,
    table: Table,
    stop: Stop,
    state: State,
) -> tuple[State, Log, Report]:
    """Up to `layout.chunk` steps; fewer when no slot is active or half of them are parked."""
    quota = max(1, layout.rows * layout.slots // 2)

    def goes_on(carry: _Carry) -> Bool[Array, ""]:
        state, _, step = carry
        parked = jnp.sum(state.status == PARKED)
        return (step < layout.chunk) & jnp.any(state.status == ACTIVE) & (parked < quota)

    def advance(carry: _Carry) -> _Carry:
        state, log, step = carry
        state, line = _step(weights, config, settings, layout, table, stop, state)
        log = jax.tree.map(lambda a, x: lax.dynamic_update_slice(a, x[None], (step, 0)), log, line)
        return supply(state, bank, queue, table), log, step + 1

    start = (supply(state, bank, queue, table), empty_log(layout), jnp.int32(0))
    state, log, steps = lax.while_loop(goes_on, advance, start)
    active, parked = (jnp.sum(state.status == s) for s in (ACTIVE, PARKED))
    return state, log, Report(steps, active, parked)


def _step(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    settings: Settings,
    layout: Layout,
    table: Table,
    stop: Stop,
    state: State,
) -> tuple[State, Log]:
    """One token for every active slot, and what came of it."""
    slots = layout.rows * layout.slots
    cells = state.trunks.values[0].shape[2] // layout.trunks_per_row
    cell = state.clock % layout.ring
    job, drawn, place = (a.reshape(slots) for a in (state.job, state.drawn, state.place))
    is_active = state.status.reshape(slots) == ACTIVE
    # The prefix's last token is fed, so its KV is in the ring.
    stored = table.prefix_length[job] - 1
    index = table.offset[job] + drawn

    in_trunk, in_ring = _visible(layout, cells, place, stored, drawn, cell)
    logits, ring, is_finite = decode.step(
        weights,
        config,
        state.token.reshape(slots),
        stored + drawn,
        state.trunks,
        state.ring,
        in_trunk,
        in_ring,
        cell,
        is_frozen=state.status.reshape(slots) == PARKED,
    )
    drew = draw(logits, _uniforms(table.key[job], index), settings, config.num_tokens)
    after = stop.table[state.stop_state.reshape(slots), drew.token]
    finish = _finish(
        is_error=~(is_finite & drew.is_finite),
        is_eos=jnp.isin(drew.token, jnp.array(settings.eos_ids, jnp.int32)),
        is_stop=after == stop.matched,
        is_spent=drawn + 1 >= table.limit[job],
    )
    is_full = drawn + 1 >= layout.ring
    status = jnp.where(finish != Finish.RUNNING, IDLE, jnp.where(is_full, PARKED, ACTIVE))
    log = Log(
        jnp.where(is_active, job, -1), index, drew.token, drew.logprob, drew.logprob_full, finish
    )

    def update(new: Int[Array, "B"], old: Int[Array, "R U"]) -> Int[Array, "R U"]:
        return jnp.where(is_active.reshape(old.shape), new.reshape(old.shape), old)

    state = state._replace(
        ring=ring,
        status=update(status, state.status),
        token=update(drew.token, state.token),
        drawn=update(drawn + 1, state.drawn),
        stop_state=update(after, state.stop_state),
        full_cell=update(jnp.broadcast_to(cell, (slots,)), state.full_cell),
        clock=state.clock + 1,
    )
    return state, log


def _visible(
    layout: Layout,
    cells: int,
    place: Int[Array, "B"],
    stored: Int[Array, "B"],
    drawn: Int[Array, "B"],
    cell: Int[Array, ""],
) -> tuple[Bool[Array, "B W"], Bool[Array, "B T"]]:
    """What a slot looks at: `stored` cells of its place in the row, and its own in the ring."""
    at, begin = jnp.arange(layout.trunks_per_row * cells), (place * cells)[:, None]
    in_trunk = (at >= begin) & (at < begin + stored[:, None])
    return in_trunk, (cell - jnp.arange(layout.ring)) % layout.ring <= drawn[:, None]


def _finish(
    is_error: Bool[Array, "B"],
    is_eos: Bool[Array, "B"],
    is_stop: Bool[Array, "B"],
    is_spent: Bool[Array, "B"],
) -> Int[Array, "B"]:
    """A Finish value a slot; of several reasons the first one counts."""
    reasons = (Finish.ERROR, Finish.EOS, Finish.STOP, Finish.LENGTH)
    found = [is_error, is_eos, is_stop, is_spent]
    return jnp.select(found, [int(reason) for reason in reasons], int(Finish.RUNNING))


def _uniforms(key: UInt32[Array, "B 2"], index: Int[Array, "B"]) -> Float[Array, "B"]:
    """One uniform a slot, a function of the job's key and the token's index alone."""

    def one(key: UInt32[Array, "2"], index: Int[Array, ""]) -> Float[Array, ""]:
        return jax.random.uniform(
            jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), index)
        )

    return jax.vmap(one)(key, index)
