"""Re-rooting: a vine that has filled its ring becomes a trunk of its own and goes on.

Its keys and values move, none is computed again; its job keeps its key, so it draws what it would
have drawn in a longer ring.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vinejax.sampler.decode import Cache, unblocked
from vinejax.sampler.records import Layout
from vinejax.sampler.state import IDLE, PARKED, State, Table


@partial(jax.jit, static_argnames=("layout",))
def uproot(state: State, table: Table, layout: Layout) -> tuple[Cache, Table]:
    """A bank with every slot's prefix and vine, side by side, and the jobs that go on from them.

    Entry b is slot b, whatever its status: the caller takes the parked ones. Cells of an entry:
    those of a trunk's place and those of a ring.
    """
    rows, slots = state.job.shape
    cells = state.trunks.values[0].shape[2] // layout.trunks_per_row
    job, place, last = (a.reshape(-1) for a in (state.job, state.place, state.full_cell))
    stored = table.prefix_length[job] - 1

    at = jnp.arange(cells + layout.ring)
    row = jnp.repeat(jnp.arange(rows), slots)[:, None]
    trunk_cell = jnp.minimum(place[:, None] * cells + at, layout.trunks_per_row * cells - 1)
    # The oldest cell comes first.
    ring_cell = (last[:, None] + 1 + at - stored[:, None]) % layout.ring
    is_trunk = at < stored[:, None]
    is_ring = ~is_trunk & (at < stored[:, None] + layout.ring)
    slot = jnp.arange(rows * slots)[:, None]

    def merge(
        trunk: Float[Array, "R W G H"], ring: Float[Array, "B T G H"]
    ) -> Float[Array, "B cells G H"]:
        merged = jnp.where(is_ring[..., None, None], ring[slot, ring_cell], 0)
        return jnp.where(is_trunk[..., None, None], trunk[row, trunk_cell], merged)

    def move(
        trunk: Float[Array, "R ..."], ring: Float[Array, "B ..."], axes: tuple[int, ...]
    ) -> Float[Array, "B ..."]:
        """`merge` of caches whose `axes` bring the cells to the front, and back again."""
        back = tuple(axes.index(i) for i in range(4))
        return merge(trunk.transpose(axes), ring.transpose(axes)).transpose(back)

    pairs = zip(state.trunks.keys, state.ring.keys, strict=True)
    if state.ring.by_cell:
        keys = [move(t, r, (0, 2, 1, 3)).swapaxes(2, 3) for t, r in pairs]
    else:
        keys = [move(t, unblocked(r), (0, 3, 1, 2)) for t, r in pairs]
    values = [
        move(t, r, (0, 2, 1, 3))
        for t, r in zip(state.trunks.values, state.ring.values, strict=True)
    ]
    drawn = state.drawn.reshape(-1)
    jobs = Table(
        prefix_length=table.prefix_length[job] + drawn,
        first_token=state.token.reshape(-1),
        stop_state=state.stop_state.reshape(-1),
        offset=table.offset[job] + drawn,
        limit=table.limit[job] - drawn,
        work=jnp.ones_like(job),
        key=table.key[job],
    )
    return Cache(keys, values), jobs


@partial(jax.jit, donate_argnames=("state",))
def release(state: State) -> State:
    """The state with its parked slots free again."""
    return state._replace(status=jnp.where(state.status == PARKED, IDLE, state.status))
