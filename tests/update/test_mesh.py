"""The same update on 1, 2 and 8 devices and several meshes, and a comparison that would notice."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from vinejax import masked, sharding, update

SLOW = [pytest.param(shape, marks=pytest.mark.slow) for shape in [(2, 1, 1), (8, 1, 1), (1, 8, 1)]]
MESHES = [(1, 1, 1), (2, 2, 2), *SLOW]


def mesh_of(shape):
    return sharding.make_mesh(*shape, devices=jax.devices()[: int(np.prod(shape))])


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_loss_gradient_and_new_parameters_do_not_depend_on_the_mesh(run, assert_same, batch, shape):
    assert_same(run(batch), run(batch, mesh_of(shape)))


def test_nor_does_accumulation_on_a_mesh(run, assert_same, batch):
    assert_same(run(batch), run(batch, mesh_of((2, 2, 2)), microbatch=4))


def test_a_mean_of_the_devices_means_would_be_noticed(run, assert_same, batch):
    """The authors' reduction: each rank divides by its own tokens, then ranks are averaged."""
    whole = run(batch)
    white = replace(batch, advantages=masked.whiten(batch.advantages, batch.is_response))
    ranks = [
        run(jax.tree.map(lambda x, i=i: x[i : i + 1], white), microbatch=1, whiten=False)
        for i in range(8)
    ]
    _, gradient, _ = jax.tree.map(lambda *x: np.mean(x, axis=0), *ranks)
    with pytest.raises(AssertionError):
        assert_same(whole, (whole[0], gradient, whole[2]))


def test_parameters_and_moments_lie_as_the_rule_table_says(hyper, params, batch):
    mesh = mesh_of((2, 2, 2))
    made = update.make_step(hyper, mesh)
    state, _ = made.step(
        update.init(params, hyper, mesh), jax.device_put(batch, made.batch_sharding)
    )
    for tree in (state.params, state.opt_state[1].mu, state.opt_state[1].nu):
        assert tree["layers"]["wq"].sharding.spec == PartitionSpec(None, "fsdp", "tensor")
        assert tree["layers"]["wq"].addressable_shards[0].data.shape == (1, 8, 8)
    moved = jax.tree.map(
        lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), state, made.state_sharding
    )
    assert all(jax.tree.leaves(moved))


def test_on_a_mesh_too_the_state_shares_nothing_with_the_reference(hyper, params, batch):
    mesh = mesh_of((1, 8, 1))
    made = update.make_step(hyper, mesh)
    placed = jax.device_put(params, made.state_sharding.params)
    state = update.init(placed, hyper, mesh)
    made.step(state, batch)
    assert all(x.is_deleted() for x in jax.tree.leaves(state.params))
    assert not any(x.is_deleted() for x in jax.tree.leaves(placed))


def test_rows_that_do_not_divide_over_the_devices_are_refused(run, batch):
    with pytest.raises(ValueError, match=r"microbatch is 4.* 8 devices"):
        run(batch, mesh_of((8, 1, 1)), microbatch=4)


def test_a_parameter_that_does_not_divide_is_refused_by_name(hyper, params):
    narrow = {**params, "embed": jnp.zeros((24, 12))}
    with pytest.raises(ValueError, match=r"params\['embed'\] has size 12 .*8 devices"):
        update.init(narrow, hyper, mesh_of((1, 8, 1)))
