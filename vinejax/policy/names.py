"""The bijective table between our parameter tree and Hugging Face tensor names.

A Hugging Face linear layer stores [out, in]; ours is [in, out] (`x @ w`), so matrices are
transposed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vinejax.policy.config import LlamaConfig
from vinejax.policy.llama import shapes

_TOP = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "wq": "self_attn.q_proj.weight",
    "wk": "self_attn.k_proj.weight",
    "wv": "self_attn.v_proj.weight",
    "wo": "self_attn.o_proj.weight",
    "bq": "self_attn.q_proj.bias",
    "bk": "self_attn.k_proj.bias",
    "bv": "self_attn.v_proj.bias",
    "mlp_norm": "post_attention_layernorm.weight",
    "w_gate": "mlp.gate_proj.weight",
    "w_up": "mlp.up_proj.weight",
    "w_down": "mlp.down_proj.weight",
}
HEAD = _TOP["head"]
EMBED = _TOP["embed"]


class Entry(NamedTuple):
    """One tensor on disk: its name and shape there, and where it lives in the tree."""

    name: str
    shape: tuple[int, ...]
    leaf: str
    layer: int | None  # None: a leaf outside the layers

    @property
    def is_transposed(self) -> bool:
        return self.leaf == "head" or self.leaf.startswith("w")

    def flip(self, array: np.ndarray) -> np.ndarray:
        """From disk to tree and back: its own inverse."""
        return array.T if self.is_transposed else array


def entries(config: LlamaConfig) -> Iterator[Entry]:
    """Every tensor of a model of this shape, embedding first, head (if it has one) last."""

    def entry(name: str, leaf: str, shape: tuple[int, ...], layer: int | None) -> Entry:
        found = Entry(name, shape, leaf, layer)
        return found._replace(shape=shape[::-1]) if found.is_transposed else found

    tree = shapes(config)
    yield entry(EMBED, "embed", tree["embed"], None)
    for index in range(config.layers):
        for leaf, shape in tree["layers"].items():
            yield entry(f"model.layers.{index}.{_LAYER[leaf]}", leaf, shape[1:], index)
    yield entry(_TOP["final_norm"], "final_norm", tree["final_norm"], None)
    if not config.tied:
        yield entry(HEAD, "head", tree["head"], None)


def is_ignorable(name: str) -> bool:
    """True for buffers that old exports carry and that follow from the configuration."""
    return name.endswith("rotary_emb.inv_freq")
