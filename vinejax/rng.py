"""Random keys derived by name and index, never by the order of calls.

A phase of an iteration gets its key from (seed, iteration, phase), so a resumed run, or one that
skips a phase, draws what the uninterrupted run drew. Keys are typed (`jax.random.key`).
"""

import hashlib

import jax
from jaxtyping import Array, Key

from vinejax.config import ConfigError

SEED_RANGE = 2**32


def key(seed: int) -> Key[Array, ""]:
    """The root key of a run. Raises ConfigError for a seed outside [0, 2**32)."""
    if not 0 <= seed < SEED_RANGE:
        raise ConfigError(f"seed is {seed}; choose a whole number from 0 to {SEED_RANGE - 1}")
    return jax.random.key(seed)


def fold_name(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """A key for `name`, from a 32-bit hash that is the same in every process and Python version."""
    digest = hashlib.blake2b(name.encode("utf-8"), digest_size=4).digest()
    return jax.random.fold_in(key, int.from_bytes(digest, "big"))


def phase_key(seed: int, iteration: int, phase: str) -> Key[Array, ""]:
    """The key of one phase ("trajectories", "values", ...) of one iteration."""
    return fold_name(jax.random.fold_in(key(seed), iteration), phase)
