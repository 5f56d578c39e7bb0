"""Where arrays live: one table from logical axis names to the axes of the device mesh.

Modules name the axes of their arrays ("embed", "heads", ...); this file alone knows the mesh.
Changing the layout of the whole program is changing `RULES`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from vinejax.config import ConfigError

AXES = ("data", "fsdp", "tensor")

MeshAxes = str | tuple[str, ...] | None

RULES: Mapping[str, MeshAxes] = {
    "batch": ("data", "fsdp"),
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    "layers": None,
    "head_dim": None,
    "replica": "data",  # rows of which all fsdp devices of a copy work on the same ones
}

# Weights as they are multiplied with: all fsdp shards of an array come together before its use.
GATHERED = {**RULES, "embed": None}


def make_mesh(
    data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """A data x fsdp x tensor mesh. `data=-1` takes the devices that the other two leave.

    Raises ConfigError when the product of the sizes is not the number of devices.
    """
    if devices is None:  # those of a process side by side, so that fsdp and tensor stay in it
        devices = sorted(jax.devices(), key=lambda device: device.process_index)
    devices = list(devices)
    rest = fsdp * tensor
    if fsdp < 1 or tensor < 1 or (data < 1 and data != -1):
        raise ConfigError(
            f"mesh is data={data}, fsdp={fsdp}, tensor={tensor}; give positive sizes, "
            "or -1 (the rest) for data"
        )
    if data == -1:
        data = max(len(devices) // rest, 1)
    if data * rest != len(devices):
        raise ConfigError(
            f"mesh.data x mesh.fsdp x mesh.tensor = {data} x {fsdp} x {tensor} needs {data * rest} "
            f"devices, there are {len(devices)}; choose sizes whose product is {len(devices)}"
        )
    grid = np.asarray(devices).reshape(data, fsdp, tensor)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def spec(
    logical_axes: Sequence[str | None], rules: Mapping[str, MeshAxes] = RULES
) -> PartitionSpec:
    """The partition of an array whose axes have these logical names (None: not partitioned).

    Raises ConfigError for a name that the table does not have, and for a mesh axis that two axes of
    the array would share.
    """
    parts: list[MeshAxes] = []
    taken: dict[str, str] = {}
    for name in logical_axes:
        if name is not None and name not in rules:
            raise ConfigError(f"logical axis {name!r} is not in the table; it has {sorted(rules)}")
        part = None if name is None else rules[name]
        for axis in (part,) if isinstance(part, str) else part or ():
            if axis in taken:
                raise ConfigError(
                    f"logical axes {taken[axis]!r} and {name!r} of one array both map to mesh axis "
                    f"{axis!r}; map one of them to another axis or to None"
                )
            taken[axis] = str(name)
        parts.append(part)
    return PartitionSpec(*parts)


def shardings(mesh: Mesh, logical_axes: Any, rules: Mapping[str, MeshAxes] = RULES) -> Any:
    """A NamedSharding for each tuple of logical axis names in the tree."""
    return jax.tree.map(
        lambda names: NamedSharding(mesh, spec(names, rules)), logical_axes, is_leaf=is_axes
    )


def is_axes(node: Any) -> bool:
    """Whether a tree node is a tuple of logical axis names (a leaf), not a container."""
    return isinstance(node, tuple) and all(name is None or isinstance(name, str) for name in node)


def replicated(mesh: Mesh) -> NamedSharding:
    """A full copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Axis number `axis` split over data and fsdp, everything else whole."""
    return NamedSharding(mesh, spec((None,) * axis + ("batch",)))


@contextmanager
def within(mesh: Mesh | None) -> Iterator[None]:
    """Functions traced in the block lay out their arrays on `mesh` (`constrain`); None: nothing."""
    if mesh is None:
        yield
        return
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        yield


def size(axis: str) -> int:
    """Devices along a mesh axis that the compiler may split arrays over; 1 outside `within`."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[axis] if axis in mesh.shape and axis not in mesh.manual_axes else 1


def devices() -> int:
    """Devices of the mesh that programs are traced for; 1 outside `within`."""
    return math.prod(size(axis) for axis in AXES)


def constrain(
    x: jax.Array, logical_axes: Sequence[str | None], rules: Mapping[str, MeshAxes] = RULES
) -> jax.Array:
    """`x`, which the compiler is to lay out by its logical axis names; so is its cotangent.

    Does nothing outside `within`.
    """
    if devices() == 1:
        return x
    return jax.lax.with_sharding_constraint(x, local_spec(logical_axes, rules))


def local_spec(
    logical_axes: Sequence[str | None], rules: Mapping[str, MeshAxes] = RULES
) -> PartitionSpec:
    """`spec` without the mesh axes that have one device, or that the program splits by hand."""

    def kept(part: MeshAxes) -> MeshAxes:
        axes = (part,) if isinstance(part, str) else part or ()
        return tuple(axis for axis in axes if size(axis) > 1) or None

    return PartitionSpec(*(kept(part) for part in spec(logical_axes, rules)))


def gather(x: jax.Array, logical_axes: Sequence[str | None]) -> jax.Array:
    """A sharded weight with the shards of `fsdp` together, for one use.

    Its cotangent is summed over devices into the shards again (reduce-scatter), never in whole.
    Does nothing outside `within`.
    """
    if devices() == 1:
        return x
    return _gather(x, tuple(logical_axes))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gather(x: jax.Array, logical_axes: tuple[str | None, ...]) -> jax.Array:
    return constrain(x, logical_axes, GATHERED)


def _gather_forward(x: jax.Array, logical_axes: tuple[str | None, ...]) -> tuple[jax.Array, None]:
    return _gather(x, logical_axes), None


def _gather_backward(
    logical_axes: tuple[str | None, ...], _: None, cotangent: jax.Array
) -> tuple[jax.Array]:
    return (constrain(cotangent, logical_axes),)


_gather.defvjp(_gather_forward, _gather_backward)


def place(tree: Any, placement: NamedSharding | None) -> Any:
    """Host arrays on the devices; with several processes all have the same arrays in whole.

    A process copies the parts of its own devices only. None: on the default device.
    """
    if placement is None or placement.is_fully_addressable:
        return jax.device_put(tree, placement)

    def build(x: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(x.shape, placement, lambda index: x[index])

    return jax.tree.map(build, tree)


def check_batch(rows: int, mesh: Mesh, field: str) -> None:
    """Raises ConfigError when data x fsdp devices do not divide `rows`, the value of `field`."""
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    if rows % devices:
        raise ConfigError(
            f"{field} is {rows}, which does not divide over mesh.data x mesh.fsdp = {devices} "
            f"devices; choose a multiple of {devices}"
        )


def check_divides(arrays: Any, shardings: Any, what: str) -> None:
    """Raises ConfigError, with both numbers, when an array axis does not divide over its devices.

    `arrays` and `shardings` are trees of the same structure; `what` names the first.
    """
    jax.tree_util.tree_map_with_path(
        lambda path, array, sharding: _check(
            array.shape, sharding, what + jax.tree_util.keystr(path)
        ),
        arrays,
        shardings,
    )


def _check(shape: Sequence[int], sharding: NamedSharding, name: str) -> None:
    for axis, part in enumerate(sharding.spec):
        axes = (part,) if isinstance(part, str) else part or ()
        devices = math.prod(sharding.mesh.shape[a] for a in axes)
        if shape[axis] % devices:
            raise ConfigError(
                f"{name} has size {shape[axis]} along axis {axis}, which does not divide over the "
                f"{devices} devices of mesh.{' x mesh.'.join(axes)}; choose a mesh size that "
                f"divides {shape[axis]}"
            )
