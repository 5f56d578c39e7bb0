"""The engine's inputs: what it must know of each job, which jobs a trunk has, and when to stop."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from vinejax import policy
from vinejax.sampler.records import Jobs, Settings, Trunks, node_hash
from vinejax.sampler.state import Queue, Stop, Table


def table(trunks: Trunks, jobs: Jobs, settings: Settings, key: jax.Array, size: int) -> Table:
    """What the engine must know of `jobs`, filled up to `size` rows."""
    prefixes = list(zip(jobs.trunk.tolist(), jobs.prefix_length.tolist(), strict=True))
    words = {(t, p): node_hash(trunks.tokens[t][:p]) for t, p in set(prefixes)}
    stop_states = _stop_states(trunks, set(jobs.trunk.tolist()), settings)
    columns = {
        "prefix_length": jobs.prefix_length,
        "first_token": [trunks.tokens[t][p - 1] for t, p in prefixes],
        "stop_state": [stop_states[t][p] for t, p in prefixes],
        "offset": np.zeros(len(jobs)),
        "limit": jobs.max_new_tokens,
        "work": _work(trunks, jobs),
    }
    padded = {
        name: jnp.asarray(_pad(np.asarray(column, np.int32), size))
        for name, column in columns.items()
    }
    identity = np.array([words[p] for p in prefixes], np.uint32).reshape(-1, 2)
    identity = np.column_stack(
        [identity, jobs.copy.astype(np.uint32), jobs.sample.astype(np.uint32)]
    )
    return Table(**padded, key=_job_keys(key, _pad(identity, size)))


def _work(trunks: Trunks, jobs: Jobs) -> np.ndarray:
    """Tokens that each job and the later ones of its trunk are expected to draw.

    A vine is expected to be as long as what is left of its trunk behind its prefix, and a token.
    """
    own = trunks.length[jobs.trunk] - jobs.prefix_length + 1
    upto = np.cumsum(own)
    last = np.flatnonzero(np.diff(jobs.trunk, append=-1))  # of each trunk
    return upto[last[np.searchsorted(last, np.arange(len(jobs)))]] - upto + own


def _stop_states(trunks: Trunks, chosen: set[int], settings: Settings) -> dict[int, np.ndarray]:
    """Of each trunk, the stop automaton's state after its first p tokens, for every p."""
    out = {}
    for trunk in chosen:
        tokens, first = trunks.tokens[trunk], int(trunks.prompt_length[trunk])
        out[trunk] = np.zeros(len(tokens) + 1, np.int32)
        if settings.stop is not None:
            out[trunk][first + 1 :] = settings.stop.states(tokens[first:].tolist())
    return out


def _pad(column: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([column, np.ones((size - len(column), *column.shape[1:]), column.dtype)])


@jax.jit
def _job_keys(key: jax.Array, words: UInt32[Array, "J 4"]) -> UInt32[Array, "J 2"]:
    """Key data of each job: the phase's key with the node, the copy and the sample folded in."""

    def one(row: UInt32[Array, "4"]) -> UInt32[Array, "2"]:
        k = key
        for word in row:
            k = jax.random.fold_in(k, word)
        return jax.random.key_data(k)

    return jax.vmap(one)(words)


def queue(place: np.ndarray, count: int) -> Queue:
    """The ranges of jobs sorted by their place in a bank of `count`.

    Places without jobs are empty ranges, which the engine passes over.
    """
    start = np.searchsorted(place, np.arange(count), side="left").astype(np.int32)
    end = np.searchsorted(place, np.arange(count), side="right").astype(np.int32)
    return Queue(jnp.asarray(start), jnp.asarray(end))


def stop_arrays(settings: Settings, config: policy.LlamaConfig) -> Stop:
    """The automaton over the model's ids; without stop strings one that never leaves its start."""
    if settings.stop is None:
        table, matched = np.zeros((2, config.vocab_size), np.int32), 1
    else:
        table, matched = np.asarray(settings.stop.table, np.int32), settings.stop.matched
        missing = max(0, config.vocab_size - table.shape[1])
        table = np.pad(table, ((0, 0), (0, missing)))
    return Stop(jnp.asarray(table), jnp.int32(matched))
