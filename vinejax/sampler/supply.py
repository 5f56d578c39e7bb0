"""Which slot takes which job, and which row loads which trunk: inside the loop, so nobody waits.

A trunk may stand in several rows; its jobs go to whatever slot asks next. A row that runs short of
jobs loads another trunk into a place whose vines have all ended: one that no row holds yet while
there are such, later one that others also work on. First come the trunks with the most tokens left
to draw, so that the last vines end at about the same time.

Letters as in `state`.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from vinejax.sampler.decode import Cache, compact
from vinejax.sampler.state import ACTIVE, IDLE, NO_TRUNK, Queue, State, Table


def supply(state: State, bank: Cache, queue: Queue, table: Table) -> State:
    """Jobs for idle slots; trunks for rows that run short, and jobs from those."""
    return _load(_assign(state, queue, table), bank, queue, table)


def _work(state: State, queue: Queue, table: Table) -> Int[Array, "N"]:
    """Tokens that each trunk's waiting jobs are expected to draw; 0 without any."""
    return jnp.where(state.next_job < queue.end, table.work[state.next_job], 0)


def _at_places(of_trunk: Int[Array, "N"], trunk: Int[Array, "R P"]) -> Int[Array, "R P"]:
    return jnp.where(trunk == NO_TRUNK, 0, of_trunk[trunk])


def _assign(state: State, queue: Queue, table: Table) -> State:
    """Gives idle slots the next jobs of their rows' trunks, as long as there are any.

    Each slot asks for the trunk of its row with the most work, and if its jobs are gone by its
    turn, for the row's next one.
    """
    rows, places = state.trunk.shape
    slots = state.job.size
    row = jnp.repeat(jnp.arange(rows), slots // rows)
    earlier = jnp.arange(slots)[:, None] > jnp.arange(slots)
    trunks = jnp.arange(queue.end.shape[0])
    for _ in range(places):
        work = _at_places(_work(state, queue, table), state.trunk)
        place = jnp.argmax(work, axis=1)[row]
        trunk = state.trunk[row, place]
        asks = (state.status.reshape(slots) == IDLE) & (work[row, place] > 0)
        before = (earlier & asks & (trunk == trunk[:, None])).sum(axis=1)
        job = state.next_job[trunk] + before
        takes = asks & (job < queue.end[trunk])
        taken = (takes[:, None] & (trunk[:, None] == trunks)).sum(axis=0)
        state = _start(state, table, takes, place, job)._replace(next_job=state.next_job + taken)
    return state


def _start(
    state: State,
    table: Table,
    takes: Bool[Array, "B"],
    place: Int[Array, "B"],
    job: Int[Array, "B"],
) -> State:
    """The state with a new job in the slots that take one."""

    def update(old: Int[Array, "R U"], new: Int[Array, "B"] | int) -> Int[Array, "R U"]:
        return jnp.where(takes, new, old.reshape(-1)).reshape(old.shape)

    job = jnp.where(takes, job, 0)
    return state._replace(
        status=update(state.status, ACTIVE),
        place=update(state.place, place),
        job=update(state.job, job),
        token=update(state.token, table.first_token[job]),
        drawn=update(state.drawn, 0),
        stop_state=update(state.stop_state, table.stop_state[job]),
    )


def _load(state: State, bank: Cache, queue: Queue, table: Table) -> State:
    """Fills free places from the bank, in rows that run short of jobs.

    An inner loop of mostly zero trips, not a `cond`: a branch would copy the whole cache in every
    step on some accelerators.
    """
    places = state.trunk.shape[1]
    trunks = jnp.arange(queue.end.shape[0])

    def choices(state: State) -> tuple[Bool[Array, "R P"], Int[Array, "R"]]:
        """Places to be filled, and the trunk that each row would take."""
        grows = (state.status != IDLE)[..., None] & (state.place[..., None] == jnp.arange(places))
        is_used = grows.any(axis=1)
        waiting = queue.end - state.next_job
        here = _at_places(waiting, state.trunk)
        in_row = (state.trunk[..., None] == trunks).any(axis=1)
        work = jnp.where(in_row, 0, _work(state, queue, table))
        fresh = jnp.where(in_row.any(axis=0), 0, work)
        best = jnp.where(fresh.any(axis=1), jnp.argmax(fresh, axis=1), jnp.argmax(work, axis=1))
        slots = state.job.shape[1]
        enough = jnp.where(fresh.any(axis=1), slots, slots // 2 + 1)
        is_short = here.sum(axis=1) < enough
        is_short &= work.any(axis=1)
        return (here == 0) & ~is_used & is_short[:, None], best

    def load_one(state: State) -> State:
        wanted, best = choices(state)
        # First places first, so that trunks spread over the rows.
        chosen = jnp.argmax(wanted.T.reshape(-1))
        place, row = chosen // len(wanted), chosen % len(wanted)
        here = (jnp.arange(len(wanted))[:, None] == row) & (jnp.arange(places) == place)
        state = state._replace(
            trunks=_copy(state.trunks, bank, best[row], row, place, state.ring.by_cell),
            trunk=jnp.where(here, best[row], state.trunk),
        )
        return _assign(state, queue, table)

    return lax.while_loop(lambda s: choices(s)[0].any(), load_one, state)


def _copy(
    rows: Cache,
    bank: Cache,
    trunk: Int[Array, ""],
    row: Int[Array, ""],
    place: Int[Array, ""],
    by_cell: bool,
) -> Cache:
    """The rows' caches with a trunk of the bank in one place of one row."""
    start = place * bank.keys[0].shape[-1]

    def put(to: Array, of: Array, is_key: bool) -> Array:
        one = lax.dynamic_slice_in_dim(of, trunk, 1)
        if is_key and by_cell:
            one = one.swapaxes(2, 3)
        at = (row, 0, 0, start) if is_key and not by_cell else (row, 0, start, 0)
        return compact(lax.dynamic_update_slice(to, one, at))

    keys = [put(to, of, True) for to, of in zip(rows.keys, bank.keys, strict=True)]
    values = [put(to, of, False) for to, of in zip(rows.values, bank.values, strict=True)]
    return Cache(keys, values)
