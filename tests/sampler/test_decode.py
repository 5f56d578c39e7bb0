"""Attention over a trunk and a ring is ordinary attention over the tokens that a slot may see."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax.sampler.decode import attend_plainly, unblocked

ROWS, SLOTS, GROUPS, COPIES, SIZE, CELLS, RING = 2, 3, 2, 2, 8, 10, 6


def ordinary(q, keys, values):
    """softmax(q K^T / sqrt(H)) V of one head in fp64."""
    score = keys @ q / np.sqrt(len(q))
    weight = np.exp(score - score.max())
    return weight @ values / weight.sum()


@pytest.mark.parametrize("trunk_cells", [(0, 0), (0, 4), (3, 10), (9, 10)])
@pytest.mark.parametrize("ring_cells", [1, 4, RING])
@pytest.mark.parametrize("blocks", [1, 3])
def test_two_caches_are_one_softmax(trunk_cells, ring_cells, blocks):
    rng = np.random.default_rng(0)
    slots = ROWS * SLOTS
    q = rng.normal(size=(slots, GROUPS * COPIES, SIZE))
    trunk_keys = rng.normal(size=(ROWS, GROUPS, SIZE, CELLS)) * 3
    trunk_values = rng.normal(size=(ROWS, GROUPS, CELLS, SIZE))
    ring_keys = rng.normal(size=(slots, GROUPS, SIZE, RING)) * 3
    ring_values = rng.normal(size=(slots, GROUPS, RING, SIZE))
    begin, end = trunk_cells
    in_trunk = np.tile((np.arange(CELLS) >= begin) & (np.arange(CELLS) < end), (slots, 1))
    in_ring = np.tile(np.arange(RING) < ring_cells, (slots, 1))
    blocked = ring_keys.reshape(slots, GROUPS, SIZE, blocks, RING // blocks).swapaxes(2, 3)
    assert_array_equal(unblocked(jnp.asarray(blocked)), jnp.asarray(ring_keys))
    single = [
        jnp.asarray(x, jnp.float32) for x in (q, trunk_keys, trunk_values, blocked, ring_values)
    ]
    out = attend_plainly(
        single[0],
        (single[1], single[2], jnp.asarray(in_trunk)),
        (single[3], single[4], jnp.asarray(in_ring)),
    )
    for slot in range(slots):
        row = slot // SLOTS
        for head in range(GROUPS * COPIES):
            group = head // COPIES
            keys = np.concatenate(
                [trunk_keys[row, group].T[begin:end], ring_keys[slot, group].T[:ring_cells]]
            )
            values = np.concatenate(
                [trunk_values[row, group][begin:end], ring_values[slot, group][:ring_cells]]
            )
            assert_allclose(out[slot, head], ordinary(q[slot, head], keys, values), atol=1e-5)
