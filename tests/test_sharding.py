"""The rule table, and the refusal of layouts that do not fit."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec

from vinejax import sharding


def test_a_mesh_has_the_three_axes_and_minus_one_takes_the_rest():
    mesh = sharding.make_mesh(data=-1, fsdp=2, tensor=2)
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert set(mesh.axis_types) == {AxisType.Auto}
    assert sharding.make_mesh(devices=jax.devices()[:1]).size == 1


def test_a_mesh_that_does_not_fit_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"3 x 2 x 1 needs 6 devices, there are 8"):
        sharding.make_mesh(3, 2, 1)
    with pytest.raises(ValueError, match="tensor=0"):
        sharding.make_mesh(1, 1, 0)
    with pytest.raises(ValueError, match=r"needs 16 devices, there are 8"):
        sharding.make_mesh(-1, 16, 1)


def test_logical_axes_become_mesh_axes():
    assert sharding.spec(("layers", "embed", "heads")) == PartitionSpec(None, "fsdp", "tensor")
    assert sharding.spec(("batch", None)) == PartitionSpec(("data", "fsdp"), None)


def test_one_mesh_axis_cannot_split_two_axes_of_an_array():
    with pytest.raises(ValueError, match=r"'heads' and 'mlp'.*'tensor'"):
        sharding.spec(("heads", "mlp"))
    with pytest.raises(ValueError, match=r"'batch' and 'embed'.*'fsdp'"):
        sharding.spec(("batch", "embed"))


def test_an_unknown_logical_axis_is_refused():
    with pytest.raises(ValueError, match="'head'"):
        sharding.spec(("head",))


def test_a_tree_of_logical_axes_gives_a_tree_of_shardings():
    mesh = sharding.make_mesh(2, 2, 2)
    tree = {"a": ("embed",), "b": [("vocab", "embed"), ()]}
    placed = sharding.shardings(mesh, tree)
    assert placed["a"].spec == PartitionSpec("fsdp")
    assert placed["b"][0].spec == PartitionSpec("tensor", "fsdp")
    assert placed["b"][1] == sharding.replicated(mesh)


def test_an_axis_that_does_not_divide_is_refused_with_name_and_both_numbers():
    mesh = sharding.make_mesh(1, 8, 1)
    placed = {"w": sharding.shardings(mesh, ("embed", "mlp"))}
    sharding.check_divides({"w": jnp.zeros((16, 3))}, placed, "params")
    with pytest.raises(ValueError, match=r"params\['w'\] has size 12 .* 8 devices of mesh.fsdp"):
        sharding.check_divides({"w": jnp.zeros((12, 3))}, placed, "params")
    with pytest.raises(ValueError, match=r"minibatch is 12.*multiple of 8"):
        sharding.check_batch(12, mesh, "minibatch")


def test_outside_a_mesh_nothing_is_laid_out():
    x = jnp.ones((4, 3))
    assert sharding.constrain(x, ("batch", None)) is x
    assert sharding.gather(x, ("embed", None)) is x
    assert (sharding.devices(), sharding.size("tensor")) == (1, 1)


def test_within_a_mesh_arrays_lie_as_their_names_say_and_one_device_axes_are_left_out():
    mesh = sharding.make_mesh(2, 4, 1)

    def laid_out(x: jax.Array) -> jax.Array:
        with sharding.within(mesh):
            assert (sharding.devices(), sharding.size("fsdp")) == (8, 4)
            assert sharding.local_spec(("batch", "heads")) == PartitionSpec(("data", "fsdp"), None)
            return sharding.constrain(x, ("embed", None))

    x = jax.device_put(jnp.ones((8, 3)), sharding.replicated(mesh))
    assert jax.jit(laid_out)(x).sharding.is_equivalent_to(
        sharding.shardings(mesh, ("embed", None)), 2
    )


def test_a_gathered_weight_is_whole_and_its_gradient_is_sharded_again():
    mesh = sharding.make_mesh(1, 4, 2)
    placed = sharding.shardings(mesh, ("embed", "mlp"))
    weight = jax.device_put(jnp.arange(32.0).reshape(8, 4), placed)

    def loss(w: jax.Array) -> jax.Array:
        with sharding.within(mesh):
            whole = sharding.gather(w, ("embed", "mlp"))
            return (whole * whole).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(weight)
    assert float(value) == float((weight * weight).sum())
    assert gradient.sharding.is_equivalent_to(placed, 2)
    assert jnp.array_equal(gradient, 2 * weight)
