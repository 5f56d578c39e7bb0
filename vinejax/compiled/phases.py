"""The programs of an iteration, lowered from shapes alone: for devices that are not there.

Nothing here is run and no array is made. `sharding` says where the arguments lie; for devices
compiled ahead of time it is made from `topology.describe`, and tracing belongs under
`policy.targeting(...)`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, Sharding

from vinejax import policy, rng, sharding, update
from vinejax.compiled.topology import abstract
from vinejax.sampler import bank, decode, engine
from vinejax.sampler.records import Layout, Settings
from vinejax.sampler.state import Queue, Stop, Table, init

STOP_STATES = 8  # of the stop automaton that stands for a task's


def parameters(config: policy.LlamaConfig) -> policy.Params:
    """Shapes of the fp32 parameters."""
    return jax.eval_shape(lambda: policy.init(config, rng.key(0)))


def weights(config: policy.LlamaConfig) -> policy.DecodeWeights:
    """Shapes of the sampler's copy."""
    return jax.eval_shape(partial(policy.unstack, config=config), parameters(config))


def sampling(
    config: policy.LlamaConfig,
    settings: Settings,
    layout: Layout,
    cells: int,
    trunks: int,
    jobs: int,
    placed: Sharding,
) -> jax.stages.Lowered:
    """The engine's loop: `trunks` in the bank, `cells` to a place of a row, a table of `jobs`."""
    counts, per_job, one = _shape((trunks,)), _shape((jobs,)), _shape(())
    queue = Queue(counts, counts)
    columns: dict[str, Any] = dict.fromkeys(Table._fields, per_job)
    table = Table(**columns | {"key": _shape((jobs, 2), jnp.uint32)})
    stop = Stop(_shape((STOP_STATES, config.vocab_size)), one)
    held = jax.eval_shape(partial(decode.empty_cache, config, trunks, cells))
    state = jax.eval_shape(partial(init, config, layout, cells), queue)
    given = [abstract(x, placed) for x in (weights(config), held, queue, table, stop, state)]
    return engine.run_chunk.lower(given[0], config, settings, layout, *given[1:])


def sampling_floor(config: policy.LlamaConfig, layout: Layout, cells: int) -> int:
    """Bytes that a step cannot do without: weights, rows' trunks and rings, each read once.

    Of the embedding a step reads a few rows, which are left out.
    """
    read = {name: x for name, x in weights(config).items() if name != "embed"}
    rows = partial(decode.empty_cache, config, layout.rows, layout.trunks_per_row * cells)
    ring = partial(decode.empty_ring, config, layout.rows * layout.slots, layout.ring)
    return size((read, jax.eval_shape(rows), jax.eval_shape(ring)))


def scoring(
    config: policy.LlamaConfig, rows: int, width: int, trunks: int, placed: Sharding
) -> jax.stages.Lowered:
    """Scores of `rows` sequences of `width` tokens; their KV goes to a bank of `trunks`."""
    tokens, per_row = _shape((rows, width)), _shape((rows,))
    held = jax.eval_shape(partial(bank.empty_bank, config, trunks, width))
    given = [abstract(x, placed) for x in (weights(config), tokens, per_row, held, per_row)]
    temperature = abstract(_shape((), jnp.float32), placed)
    return bank.score_rows.lower(
        given[0], config, given[1], given[2], temperature, bank=given[3], place=given[4]
    )


def policy_update(hyper: update.Hyper, rows: int, width: int, mesh: Mesh) -> jax.stages.Lowered:
    """An update with a minibatch of `rows` sequences of `width` tokens."""
    made = update.make_step(hyper, mesh)
    state = jax.eval_shape(partial(update.init, hyper=hyper), parameters(hyper.policy))
    kinds = {"tokens": jnp.int32, "is_response": bool}
    kinds |= dict.fromkeys(("advantages", "old_logp", "ref_logp"), jnp.float32)
    per_token = {name: _shape((rows, width), kind) for name, kind in kinds.items()}
    batch = update.Batch(length=_shape((rows,)), **per_token)
    placed = abstract(state, made.state_sharding), abstract(batch, sharding.batch(mesh))
    return jitted(made.step).lower(*placed)


def jitted(step: Any) -> jax.stages.Wrapped:
    """A step as what `jax.jit` made it: its type tells of the call alone."""
    return step


def size(tree: Any) -> int:
    """Bytes of all arrays or shapes of a tree."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _shape(dims: tuple[int, ...], dtype: Any = jnp.int32) -> Any:
    """Stands for an array in records that hold arrays."""
    return jax.ShapeDtypeStruct(dims, dtype)
