"""The programs of an iteration, lowered from shapes alone: for devices that are not there.

Nothing here is run and no array is made. Meshes for devices compiled ahead of time are made from
`topology.describe`, and tracing belongs under `policy.targeting(...)`. Sampling and scoring are the
work of one shard, whose mesh has `tensor` devices; updates are that of all devices.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

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
    mesh: Mesh,
) -> jax.stages.Lowered:
    """The engine's loop: `trunks` in the bank, `cells` to a place of a row, a table of `jobs`."""
    counts, per_job, one = _shape((trunks,)), _shape((jobs,)), _shape(())
    queue = Queue(counts, counts)
    columns: dict[str, Any] = dict.fromkeys(Table._fields, per_job)
    table = Table(**columns | {"key": _shape((jobs, 2), jnp.uint32)})
    stop = Stop(_shape((STOP_STATES, config.vocab_size)), one)
    held = jax.eval_shape(partial(decode.empty_cache, config, trunks, cells))
    state = jax.eval_shape(partial(init, config, layout, cells), queue)
    whole = sharding.replicated(mesh)
    placed_state = jax.tree.map(lambda _: whole, state)
    placed_state = placed_state._replace(
        trunks=_by_heads(state.trunks, mesh), ring=_by_heads(state.ring, mesh)
    )
    rest = [abstract(x, whole) for x in (queue, table, stop)]
    with sharding.within(mesh):
        return engine.run_chunk.lower(
            _placed_weights(config, mesh),
            config,
            settings,
            layout,
            abstract(held, _by_heads(held, mesh)),
            *rest,
            abstract(state, placed_state),
        )


def sampling_floor(config: policy.LlamaConfig, layout: Layout, cells: int) -> int:
    """Bytes that a step cannot do without: weights, rows' trunks and rings, each read once.

    Of the embedding a step reads a few rows, which are left out.
    """
    read = {name: x for name, x in weights(config).items() if name != "embed"}
    rows = partial(decode.empty_cache, config, layout.rows, layout.trunks_per_row * cells)
    ring = partial(decode.empty_ring, config, layout.rows * layout.slots, layout.ring)
    return size((read, jax.eval_shape(rows), jax.eval_shape(ring)))


def scoring(
    config: policy.LlamaConfig, rows: int, width: int, trunks: int, mesh: Mesh
) -> jax.stages.Lowered:
    """Scores of `rows` sequences of `width` tokens; their KV goes to a bank of `trunks`.

    Without `trunks` no KV is kept, and sequences share rows.
    """
    whole = sharding.replicated(mesh)
    tokens, per_row, real = (
        abstract(x, whole)
        for x in (_shape((rows, width)), _shape((rows,)), _shape((), jnp.float32))
    )
    more: dict[str, Any] = {"at": tokens}
    if trunks:
        held = jax.eval_shape(partial(bank.empty_bank, config, trunks, width))
        more |= {"bank": abstract(held, _by_heads(held, mesh)), "place": per_row}
    else:
        more |= {"segments": tokens}
    with sharding.within(mesh):
        return bank.score_rows.lower(
            _placed_weights(config, mesh), config, tokens, per_row, real, **more
        )


def policy_update(hyper: update.Hyper, rows: int, width: int, mesh: Mesh) -> jax.stages.Lowered:
    """An update with a minibatch of `rows` rows of `width` tokens, which sequences share."""
    made = update.make_step(hyper, mesh)
    state = jax.eval_shape(partial(update.init, hyper=hyper), parameters(hyper.policy))
    kinds = {"tokens": jnp.int32, "is_response": bool, "segments": jnp.int32, "at": jnp.int32}
    kinds |= dict.fromkeys(("advantages", "old_logp", "ref_logp"), jnp.float32)
    per_token = {name: _shape((rows, width), kind) for name, kind in kinds.items()}
    batch = update.Batch(length=_shape((rows,)), **per_token)
    return jitted(made.step).lower(*_placed(state, batch, made, mesh))


def critic_update(
    hyper: update.CriticHyper, rows: int, width: int, mesh: Mesh
) -> jax.stages.Lowered:
    """An update of the critic, of the same size."""
    made = update.make_critic_step(hyper, mesh)
    kinds = {"tokens": jnp.int32, "is_response": bool, "segments": jnp.int32}
    kinds |= dict.fromkeys(("returns", "old_values"), jnp.float32)
    per_token = {name: _shape((rows, width), kind) for name, kind in kinds.items()}
    batch = update.CriticBatch(length=_shape((rows,)), **per_token)
    return jitted(made.step).lower(*_placed(critic_state(hyper), batch, made, mesh))


def critic_values(
    hyper: update.CriticHyper, rows: int, width: int, mesh: Mesh
) -> jax.stages.Lowered:
    """The critic's values of all tokens of `rows` sequences."""
    placed = update.shardings(hyper, mesh, update.critic_axes(hyper.policy)).params
    params = abstract(critic_state(hyper).params, placed)
    given = [abstract(_shape(dims), sharding.batch(mesh)) for dims in ((rows, width), (rows,))]
    return jitted(update.make_values(hyper, mesh)).lower(params, *given)


def critic_state(hyper: update.CriticHyper) -> update.State:
    """Shapes of the critic's state."""
    start = partial(update.init_critic, hyper=hyper, key=rng.key(0))
    return jax.eval_shape(start, parameters(hyper.policy))


def jitted(step: Any) -> jax.stages.Wrapped:
    """A step as what `jax.jit` made it: its type tells of the call alone."""
    return step


def size(tree: Any) -> int:
    """Bytes of all arrays or shapes of a tree."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def size_on_device(tree: Any) -> int:
    """Bytes that one device has of arguments made by `abstract`."""
    return sum(
        jax.ShapeDtypeStruct(x.sharding.shard_shape(x.shape), x.dtype).size * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def _placed(state: update.State, batch: Any, made: update.Sharded, mesh: Mesh) -> tuple[Any, Any]:
    return abstract(state, made.state_sharding), abstract(batch, sharding.batch(mesh))


def _placed_weights(config: policy.LlamaConfig, mesh: Mesh) -> policy.DecodeWeights:
    axes = policy.decode_axes(config)
    return abstract(weights(config), sharding.shardings(mesh, axes))


def _by_heads(cache: Any, mesh: Mesh) -> Any:
    """Caches have their key/value heads on axis 1."""
    placed = sharding.shardings(mesh, (None, "kv_heads"))
    return jax.tree.map(lambda _: placed, cache)


def _shape(dims: tuple[int, ...], dtype: Any = jnp.int32) -> Any:
    """Stands for an array in records that hold arrays."""
    return jax.ShapeDtypeStruct(dims, dtype)
