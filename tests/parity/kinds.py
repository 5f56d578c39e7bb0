"""Tiny models of every supported kind, as a config.json and weights that a formula makes.

The formula is integer arithmetic, so that any machine and any NumPy rebuilds the weights that the
golden logits were computed with, bit for bit.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from vinejax.policy import LlamaConfig, names

_BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Original context and head size are such that of the frequencies some are kept, some divided and
# some interpolated.
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
_MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}

KINDS: dict[str, dict[str, Any]] = {
    "one_kv_head": _BASE | {"num_key_value_heads": 1, "rope_scaling": None},
    "two_kv_heads": _BASE | {"rms_norm_eps": 1e-2},
    "all_kv_heads": _BASE | {"num_key_value_heads": 4, "rope_theta": 500.0},
    "tied": _BASE | {"tie_word_embeddings": True},
    "own_head_dim": _BASE | {"head_dim": 16},
    "linear_rope": _BASE | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3_rope": _BASE | {"head_dim": 16, "rope_scaling": _LLAMA3},
    "qwen2": _BASE | _QWEN2 | {"use_sliding_window": False, "sliding_window": 16},
    "qwen2_tied": _BASE | _QWEN2 | {"tie_word_embeddings": True},
    "mistral": _BASE | _MISTRAL | {"sliding_window": None},
}


def uniform(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """fp32 numbers in [-0.5, 0.5), a hash of (name, index)."""
    x = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()))
    for multiplier in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        x = (x ^ (x >> np.uint64(31))) * np.uint64(multiplier)
    return ((x >> np.uint64(40)).astype(np.float32) / np.float32(2**24) - 0.5).reshape(shape)


def tensors(raw: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every tensor of the model under its name on disk; sized so that all parts matter."""
    out = {}
    for entry in names.entries(LlamaConfig.from_hf(raw)):
        x = uniform(entry.name, entry.shape)
        if entry.name.endswith("norm.weight"):
            out[entry.name] = 1 + x
        elif entry.name.endswith(".bias"):
            out[entry.name] = 2 * x
        else:
            out[entry.name] = x * np.float32((12 / entry.shape[-1]) ** 0.5)
    return out


def tokens() -> np.ndarray:
    """[2, 16] ids."""
    return ((uniform("tokens", (2, 16)) + 0.5) * 67).astype(np.int32)


def write(folder: Path, raw: dict[str, Any], dtype: Any = np.float32, **extra: np.ndarray) -> Path:
    """A model folder with these weights, and extra tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    arrays = {name: x.astype(dtype) for name, x in tensors(raw).items()} | extra
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
