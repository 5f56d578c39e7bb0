"""A training state with typed keys and half-precision parts, as it lies on a mesh."""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from vinejax import sharding
from vinejax.checkpoint import leaves


def state_on(mesh: Mesh | None, seed: int) -> dict[str, Any]:
    """Parameters split over fsdp, moments like them, keys and a counter that lie whole."""

    def make() -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(seed), 3)
        params = {
            "w": jax.random.normal(keys[0], (8, 16)),
            "half": jax.random.normal(keys[1], (8,)).astype(jnp.bfloat16),
        }
        moments = optax.adamw(1e-3).init(params)
        moments = jax.tree.map(lambda x: x + x.dtype.type(seed), moments)
        return {"params": params, "moments": moments, "keys": keys, "step": jnp.int32(seed)}

    if mesh is None:
        return make()
    whole, split = sharding.replicated(mesh), sharding.shardings(mesh, ("embed",))
    placed = jax.tree.map(lambda x: split if x.shape[:1] == (8,) else whole, jax.eval_shape(make))
    return jax.jit(make, out_shardings=placed)()


def digests(state: Any) -> dict[str, str]:
    """A hash of the bits of every leaf."""
    found = {}
    for name, leaf in leaves.named(state).items():
        leaf = jax.random.key_data(leaf) if leaves.is_key(leaf) else leaf
        found[name] = hashlib.sha256(np.asarray(leaf).tobytes()).hexdigest()
    return found
