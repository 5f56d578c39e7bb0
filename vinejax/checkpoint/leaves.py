"""A tree of arrays as named leaves: what a leaf is on disk, and how it comes back.

Arrays are stored under dotted names ("state.params.layers.wq"), apart from the classes that held
them and from the mesh they lay on.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp


def named(tree: Any) -> dict[str, Any]:
    """Leaves by dotted path, in the tree's order; TypeError for a leaf that is no array."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if not isinstance(leaf, (jax.Array, np.ndarray, jax.ShapeDtypeStruct)):
            raise TypeError(f"{name} is {type(leaf).__name__}; arrays go in the tree, rest in meta")
        if name in found or not name:
            raise ValueError(f"two leaves of the tree, or a tree of one leaf, have name {name!r}")
        found[name] = leaf
    return found


def signature(leaf: Any) -> list[Any]:
    """What must agree between a saved leaf and the one to restore: dtype and shape, as JSON."""
    return [str(leaf.dtype), list(leaf.shape)]


def is_key(leaf: Any) -> bool:
    """Whether the leaf is an array of typed random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def key_impl(leaf: Any) -> str | None:
    """Name of the generator that a key belongs to; None for other arrays."""
    return str(jax.random.key_impl(leaf)) if is_key(leaf) else None


def detached(leaf: Any) -> Any:
    """Values of the leaf that no later donation or overwriting reaches.

    On accelerators Orbax has its own host copy before `save` returns. On the CPU it writes from a
    view of the live buffer. JAX 0.10 notices the view and then updates out of place; a copy made
    here depends on nothing of that kind, and needs no compilation.
    """
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    leaf = jax.random.key_data(leaf) if is_key(leaf) else leaf
    if any(device.platform == "cpu" for device in leaf.sharding.device_set):
        return jax.device_put(leaf, leaf.sharding, may_alias=False)
    return leaf


def stored(leaf: Any) -> Any:
    """What stands for the leaf on disk: a NumPy array stays one, a key becomes its words."""
    if isinstance(leaf, np.ndarray):
        return leaf
    placed = leaf.sharding
    if isinstance(leaf, jax.Array) and not leaf.committed:
        placed = None
    shape = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=placed)


def restore_args(data: Any) -> Any:
    """How Orbax reads what `stored` gave."""
    if isinstance(data, np.ndarray) or data.sharding is None:
        return ocp.RestoreArgs(restore_type=np.ndarray, dtype=data.dtype)
    return ocp.ArrayRestoreArgs(
        sharding=data.sharding, global_shape=data.shape, dtype=data.dtype, strict=True
    )


def like(leaf: Any, value: Any, key_impl: str | None) -> Any:
    """What was read, in the form of the leaf that it replaces."""
    if isinstance(leaf, np.ndarray):
        return np.asarray(value)
    value = jnp.asarray(value)
    return value if key_impl is None else jax.random.wrap_key_data(value, impl=key_impl)
