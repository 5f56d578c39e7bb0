"""The Llama decoder as pure functions over a parameter tree; every matrix is used as `x @ w`.

Tree: {"embed": [V, D], "layers": {name: [L, ...]}, "final_norm": [D], "head": [D, V]}, "head"
absent when embeddings are tied. Layer names: attn_norm, mlp_norm [D], wq [D, N*H], wk, wv [D,
G*H], wo [N*H, D], w_gate, w_up [D, F], w_down [F, D], and bq, bk, bv with q/k/v biases. One
`block` serves training, scoring and the sampler's decode step: who calls it says, through
`attend`, what the keys and values are. This file knows nothing of caches, files or sampling.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vinejax import rng, sharding
from vinejax.policy import attention, rope
from vinejax.policy.config import LlamaConfig
from vinejax.policy.numerics import logits, matmul, rms_norm

Params = dict[str, Any]
DecodeWeights = dict[str, Any]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# Above this depth layers are scanned; below, unrolling costs little compile time and runs faster.
UNROLL_LAYERS = 8

ROWS = ("batch", None, None)  # the axes of [B, T, D]: every device has whole rows of its own

# What the forward pass of a block keeps for the backward pass, besides the block's input.
_KEPT = {"block": None, "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable}


def shapes(config: LlamaConfig) -> Params:
    """The parameter tree's shapes: the one table that init, import and export follow."""
    d, f = config.hidden, config.ffn
    n, g = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = {
        "attn_norm": (d,),
        "wq": (d, n),
        "wk": (d, g),
        "wv": (d, g),
        "wo": (n, d),
        "mlp_norm": (d,),
        "w_gate": (d, f),
        "w_up": (d, f),
        "w_down": (f, d),
    }
    if config.qkv_bias:
        layer |= {"bq": (n,), "bk": (g,), "bv": (g,)}
    tree: Params = {
        "embed": (config.vocab_size, d),
        "layers": {name: (config.layers, *shape) for name, shape in layer.items()},
        "final_norm": (d,),
    }
    if not config.tied:
        tree["head"] = (d, config.vocab_size)
    return tree


def logical_axes(config: LlamaConfig) -> Params:
    """The logical axis names of every parameter, for the sharding rule table."""
    layer = {
        "attn_norm": ("layers", "embed"),
        "wq": ("layers", "embed", "heads"),
        "wk": ("layers", "embed", "kv_heads"),
        "wv": ("layers", "embed", "kv_heads"),
        "wo": ("layers", "heads", "embed"),
        "mlp_norm": ("layers", "embed"),
        "w_gate": ("layers", "embed", "mlp"),
        "w_up": ("layers", "embed", "mlp"),
        "w_down": ("layers", "mlp", "embed"),
    }
    if config.qkv_bias:
        layer |= {"bq": ("layers", "heads"), "bk": ("layers", "kv_heads")}
        layer |= {"bv": ("layers", "kv_heads")}
    tree: Params = {"embed": ("vocab", "embed"), "layers": layer, "final_norm": ("embed",)}
    if not config.tied:
        tree["head"] = ("embed", "vocab")
    return tree


def decode_axes(config: LlamaConfig) -> DecodeWeights:
    """The logical axis names of `unstack`ed weights, which no device shares but for `tensor`."""

    def whole(axes: tuple[str, ...]) -> tuple[str | None, ...]:
        return tuple(None if name == "embed" else name for name in axes)

    axes = logical_axes(config)
    layer = {name: whole(own[1:]) for name, own in axes["layers"].items()}
    return {
        "embed": whole(axes["embed"]),
        "layers": [layer] * config.layers,
        "final_norm": whole(axes["final_norm"]),
        "head": (None, "vocab"),
    }


def init(config: LlamaConfig, key: jax.Array) -> Params:
    """Random fp32 parameters; each leaf's key comes from its name.

    Matrices are normal with variance 1/fan-in, those that write to the residual stream smaller by
    sqrt(2 L) (GPT-2's rule), norms are 1, biases 0. The head has standard deviation 0.02, and so
    has a tied embedding; an untied one has 1, the size of what the blocks add to it: with 0.02 the
    model of the `tiny` configuration learnt its task incompletely from one of four seeds.
    """
    spread = {"head": 0.02, "embed": 0.02 if config.tied else 1.0}

    def leaf(path: tuple, shape: tuple[int, ...]) -> jax.Array:
        name = path[-1].key
        if name.endswith("norm"):
            return jnp.ones(shape, jnp.float32)
        if name in ("bq", "bk", "bv"):
            return jnp.zeros(shape, jnp.float32)
        std = spread[name] if name in spread else shape[-2] ** -0.5
        if name in ("wo", "w_down"):
            std /= (2 * config.layers) ** 0.5
        return std * jax.random.normal(rng.fold_name(key, name), shape, jnp.float32)

    return jax.tree_util.tree_map_with_path(
        leaf, shapes(config), is_leaf=lambda x: isinstance(x, tuple)
    )


def block(
    w: dict[str, jax.Array],
    x: Float[Array, "... D"],
    config: LlamaConfig,
    cos: Float[Array, "... H/2"],
    sin: Float[Array, "... H/2"],
    attend: Attend,
) -> Float[Array, "... D"]:
    """One decoder layer. `w` is one layer's arrays, already cast (see `cast`).

    `attend(q [..., N, H], k [..., G, H], v [..., G, H]) -> [..., N, H]` gets rotated queries and
    keys and owns whatever cache there is.
    """

    def project(name: str, heads: int) -> jax.Array:
        out = matmul(h, w["w" + name])
        if config.qkv_bias:
            out = out + w["b" + name]
        return out.reshape(*out.shape[:-1], heads, config.head_dim)

    with jax.named_scope("attention"):
        h = rms_norm(x, w["attn_norm"], config.norm_eps)
        q = rope.rotate(project("q", config.heads), cos, sin)
        k = rope.rotate(project("k", config.kv_heads), cos, sin)
        mixed = attend(q, k, project("v", config.kv_heads))
        mixed = mixed.reshape(*x.shape[:-1], config.heads * config.head_dim)
        x = x + matmul(mixed, w["wo"])
    with jax.named_scope("mlp"):
        h = rms_norm(x, w["mlp_norm"], config.norm_eps)
        gated = jax.nn.silu(matmul(h, w["w_gate"])) * matmul(h, w["w_up"])
        return x + matmul(gated, w["w_down"])


def hidden(
    params: Params,
    config: LlamaConfig,
    tokens: Int[Array, "B T"],
    where: Bool[Array, "B T"] | None = None,
    positions: Int[Array, "B T"] | None = None,
    segments: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T D"]:
    """Final-norm hidden states in compute dtype; [b, t] predicts the token after tokens[b, t].

    `where` marks real tokens (all, if None; padding may stand on either side and hold any id).
    `segments` gives tokens that share a row but not a text different ids: they don't see each other
    and their positions restart. Values at padding are finite and mean nothing.
    """
    if where is None:
        where = jnp.ones(tokens.shape, bool)
    if positions is None:
        positions = rope.positions_of(where, segments)
    cos, sin = rope.angles(config, positions)
    axes = logical_axes(config)

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return attention.causal(q, k, v, where, segments, config.attention)

        # Cast first: half the bytes go between devices.
        w = {
            name: sharding.gather(x, axes["layers"][name][1:])
            for name, x in _cast_leaves(w, config).items()
        }
        return sharding.constrain(block(w, x, config, cos, sin, attend), ROWS), None

    unroll = config.layers <= UNROLL_LAYERS
    if config.remat != "none":
        # Inside a real loop XLA cannot undo the recomputation by merging it with the forward pass.
        layer = jax.checkpoint(layer, prevent_cse=unroll, policy=_KEPT[config.remat])
    x = embed_tokens(params["embed"], config, tokens, where)
    x, _ = jax.lax.scan(layer, x, params["layers"], unroll=unroll)
    return rms_norm(x, sharding.gather(params["final_norm"], ("embed",)), config.norm_eps)


def forward(
    params: Params,
    config: LlamaConfig,
    tokens: Int[Array, "B T"],
    where: Bool[Array, "B T"] | None = None,
    positions: Int[Array, "B T"] | None = None,
    segments: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T V"]:
    """Raw fp32 logits of all `vocab_size` rows, padding rows included; arguments as in `hidden`."""
    return logits(hidden(params, config, tokens, where, positions, segments), head(params, config))


def embed_tokens(
    embed: Float[Array, "V D"],
    config: LlamaConfig,
    tokens: Int[Array, "..."],
    where: Bool[Array, "..."] | None = None,
) -> Float[Array, "... D"]:
    """Embedding rows in compute dtype; where `where` is False any id will do."""
    if where is not None:
        tokens = jnp.where(where, tokens, 0)
    if tokens.ndim != 2:
        return embed[tokens].astype(config.compute_dtype)
    # A device looks up its part of the width for the rows of its whole fsdp group, and they change
    # rows for widths: so neither the table nor its gradient comes together anywhere.
    x = embed[sharding.constrain(tokens, ("replica", None))].astype(config.compute_dtype)
    return sharding.constrain(sharding.constrain(x, ("replica", None, "embed")), ROWS)


def head(params: Params, config: LlamaConfig) -> Float[Array, "D V"]:
    """The output matrix in compute dtype: the embedding, transposed, when the two are tied.

    Whole but for its shards of the vocabulary.
    """
    matrix = params["embed"].T if config.tied else params["head"]
    return sharding.gather(matrix.astype(config.compute_dtype), ("embed", "vocab"))


def cast(params: Params, config: LlamaConfig) -> Params:
    """The tree in compute dtype; norm weights are fp32, in which they are applied."""
    layers = _cast_leaves(params["layers"], config)
    return {**_cast_leaves({k: v for k, v in params.items() if k != "layers"}, config)} | {
        "layers": layers
    }


def unstack(params: Params, config: LlamaConfig) -> DecodeWeights:
    """The scorer's and sampler's copy: cast, one dict a layer, the head an array of its own.

    {"embed": [V, D], "layers": [{name: [...]}, ...], "final_norm": [D], "head": [D, V]}; made once
    after each change of the parameters.
    """
    ready = cast(params, config)
    layers = [{k: v[i] for k, v in ready["layers"].items()} for i in range(config.layers)]
    return {
        "embed": ready["embed"],
        "layers": layers,
        "final_norm": ready["final_norm"],
        "head": head(ready, config),
    }


def _cast_leaves(leaves: dict[str, jax.Array], config: LlamaConfig) -> dict[str, jax.Array]:
    return {
        name: x.astype(jnp.float32 if name.endswith("norm") else config.compute_dtype)
        for name, x in leaves.items()
    }
