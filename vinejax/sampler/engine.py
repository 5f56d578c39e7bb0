"""The jitted loop: slots take jobs from their row, rows take trunks from the bank, nobody waits.

Jobs are sorted by trunk, so the jobs of a trunk are a range. A row holds a few trunks (`places`); a
slot that ends takes the next job of its row, and a place whose jobs have all ended takes the next
trunk from the bank, both inside the loop. What was drawn goes to a log, one line a step, that the
host reads afterwards: no slot writes to a place of its own, so there is no scatter.

Letters as in `decode`; further P places of a row, S cells of a place, J jobs, N trunks, C steps of
a chunk.
"""

from functools import partial
from typing import NamedTuple

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

IDLE, ACTIVE, PARKED = 0, 1, 2  # a parked slot has filled its ring and waits to be re-rooted


class Table(NamedTuple):
    """What the engine knows of each job."""

    prefix_length: Int[Array, "J"]
    first_token: Int[Array, "J"]  # the last token of the prefix: the first one fed
    stop_state: Int[Array, "J"]  # of the stop automaton after the response part of the prefix
    offset: Int[Array, "J"]  # tokens that the job has drawn before (more than 0 after re-rooting)
    limit: Int[Array, "J"]  # tokens it may still draw; at least 1
    key: UInt32[Array, "J 2"]


class Queue(NamedTuple):
    """Trunks in the order in which rows take them, each with the range of its jobs."""

    start: Int[Array, "N"]
    end: Int[Array, "N"]  # the last job of trunk n is end[n] - 1
    count: Int[Array, ""]  # trunks beyond it are padding


class Stop(NamedTuple):
    """The stop automaton on the device."""

    table: Int[Array, "states V"]  # the state after one more token
    matched: Int[Array, ""]  # the absorbing state of a match


class State(NamedTuple):
    """Everything a chunk hands to the next one; donated."""

    trunks: Cache  # rows: R, cells: P * S
    ring: Cache  # rows: B, cells: T
    next_job: Int[Array, "R P"]
    end_job: Int[Array, "R P"]
    next_trunk: Int[Array, ""]
    status: Int[Array, "R U"]
    place: Int[Array, "R U"]  # which of its row's trunks a slot grows from
    job: Int[Array, "R U"]
    token: Int[Array, "R U"]  # to be fed next
    drawn: Int[Array, "R U"]  # tokens since the slot took its job
    stop_state: Int[Array, "R U"]
    full_cell: Int[Array, "R U"]  # of a parked slot: the ring cell it wrote last
    clock: Int[Array, ""]  # steps so far; clock modulo T is the ring cell of the next one


class Log(NamedTuple):
    """What every slot drew in every step of a chunk; job is -1 where a slot had none."""

    job: Int[Array, "C B"]
    index: Int[Array, "C B"]  # of the token in its continuation
    token: Int[Array, "C B"]
    logprob: Float[Array, "C B"]
    logprob_full: Float[Array, "C B"]
    finish: Int[Array, "C B"]


class Report(NamedTuple):
    """What the host must know to go on."""

    steps: Int[Array, ""]
    active: Int[Array, ""]
    parked: Int[Array, ""]


@partial(jax.jit, static_argnames=("config", "layout", "cells"))
def init(config: policy.LlamaConfig, layout: Layout, cells: int) -> State:
    """Empty rows and slots; `cells` is the length of one trunk's place."""
    rows, slots, places = layout.rows, layout.slots, layout.trunks_per_row
    per_slot = {
        name: jnp.zeros((rows, slots), jnp.int32)
        for name in ("status", "place", "job", "token", "drawn", "stop_state", "full_cell")
    }
    return State(
        trunks=decode.empty_cache(config, rows, places * cells),
        ring=decode.empty_cache(config, rows * slots, layout.ring),
        next_job=jnp.zeros((rows, places), jnp.int32),
        end_job=jnp.zeros((rows, places), jnp.int32),
        next_trunk=jnp.int32(0),
        clock=jnp.int32(0),
        **per_slot,
    )


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
        return _assign(_load(state, bank, queue), table), log, step + 1

    state = _assign(_load(state, bank, queue), table)
    log = _empty_log(layout)
    state, log, steps = lax.while_loop(goes_on, advance, (state, log, jnp.int32(0)))
    active, parked = (jnp.sum(state.status == s) for s in (ACTIVE, PARKED))
    return state, log, Report(steps, active, parked)


def _empty_log(layout: Layout) -> Log:
    shape = (layout.chunk, layout.rows * layout.slots)
    whole, real = jnp.full(shape, -1, jnp.int32), jnp.zeros(shape, jnp.float32)
    return Log(whole, whole, whole, real, real, whole)


def _load(state: State, bank: Cache, queue: Queue) -> State:
    """Fills free places from the bank, where a row is about to run out of jobs.

    An inner loop of mostly zero trips, not a `cond`: a branch would copy the whole cache in every
    step on some accelerators.
    """
    rows, places = state.next_job.shape
    cells = bank.keys[0].shape[-1]
    is_used = (state.status != IDLE)[..., None] & (state.place[..., None] == jnp.arange(places))
    is_used = is_used.any(axis=1)

    def wanted(state: State) -> Bool[Array, "R P"]:
        waiting = state.end_job - state.next_job
        is_short = waiting.sum(axis=1, keepdims=True) < state.job.shape[1]
        return (waiting == 0) & ~is_used & is_short

    def load_one(state: State) -> State:
        # First places first, so that trunks spread over the rows.
        chosen = jnp.argmax(wanted(state).T.reshape(-1))
        place, row = chosen // rows, chosen % rows
        trunk, start = state.next_trunk, place * cells
        keys = [
            lax.dynamic_update_slice(to, lax.dynamic_slice_in_dim(of, trunk, 1), (row, 0, 0, start))
            for to, of in zip(state.trunks.keys, bank.keys, strict=True)
        ]
        values = [
            lax.dynamic_update_slice(to, lax.dynamic_slice_in_dim(of, trunk, 1), (row, 0, start, 0))
            for to, of in zip(state.trunks.values, bank.values, strict=True)
        ]
        here = (jnp.arange(rows)[:, None] == row) & (jnp.arange(places) == place)
        return state._replace(
            trunks=Cache(keys, values),
            next_job=jnp.where(here, queue.start[trunk], state.next_job),
            end_job=jnp.where(here, queue.end[trunk], state.end_job),
            next_trunk=trunk + 1,
        )

    return lax.while_loop(lambda s: (s.next_trunk < queue.count) & wanted(s).any(), load_one, state)


def _assign(state: State, table: Table) -> State:
    """Gives every idle slot the next job of its row, as long as there are any."""
    places = state.next_job.shape[1]
    is_idle = state.status == IDLE
    rank = jnp.cumsum(is_idle, axis=1) - 1
    waiting = state.end_job - state.next_job
    upto = jnp.cumsum(waiting, axis=1)
    place = jnp.sum(rank[..., None] >= upto[:, None], axis=-1)
    takes = is_idle & (place < places)
    place = jnp.minimum(place, places - 1)
    first = jnp.take_along_axis(state.next_job - (upto - waiting), place, axis=1)
    job = jnp.where(takes, first + rank, state.job)
    taken = takes[..., None] & (place[..., None] == jnp.arange(places))
    return state._replace(
        next_job=state.next_job + taken.sum(axis=1),
        status=jnp.where(takes, ACTIVE, state.status),
        place=jnp.where(takes, place, state.place),
        job=job,
        token=jnp.where(takes, table.first_token[job], state.token),
        drawn=jnp.where(takes, 0, state.drawn),
        stop_state=jnp.where(takes, table.stop_state[job], state.stop_state),
    )


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
    cells = state.trunks.keys[0].shape[-1] // layout.trunks_per_row
    cell = state.clock % layout.ring
    job, drawn, place = (a.reshape(slots) for a in (state.job, state.drawn, state.place))
    is_active = state.status.reshape(slots) == ACTIVE
    # The prefix's last token is fed, so its KV is in the ring.
    stored = table.prefix_length[job] - 1
    index = table.offset[job] + drawn

    at, begin = jnp.arange(layout.trunks_per_row * cells), (place * cells)[:, None]
    in_trunk = (at >= begin) & (at < begin + stored[:, None])
    in_ring = (cell - jnp.arange(layout.ring)) % layout.ring <= drawn[:, None]
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
