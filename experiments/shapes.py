"""Shapes of models that need not be here: by name, by hub id, in numbers, or from a folder."""

import json
from dataclasses import replace
from pathlib import Path

from vinejax import policy, tasks
from vinejax.config import Config, ConfigError, UserError, nearest
from vinejax.train import start

# Source: config.json of TinyLlama 1.1B, whose shape RhoMath has, and of DeepSeekMath 7B.
SHAPES = {
    "rho1b": policy.LlamaConfig(32000, 2048, 22, 32, 4, 5632, 64, norm_eps=1e-5),
    "deepseekmath7b": policy.LlamaConfig(102400, 4096, 30, 32, 32, 11008, 128),
}
_HUB = {
    "microsoft/rho-math-1b-v0.1": "rho1b",
    "realtreetune/rho-1b-sft-MATH": "rho1b",
    "realtreetune/rho-1b-sft-GSM8K": "rho1b",
    "deepseek-ai/deepseek-math-7b-base": "deepseekmath7b",
    "realtreetune/deepseekmath-7b-sft-MATH-v2": "deepseekmath7b",
    "realtreetune/deepseekmath-7b-sft-GSM8K": "deepseekmath7b",
}
NUMBERS = "hidden,layers,heads,kv_heads,head_dim,ffn,vocabulary"


def find(config: Config, shape: str | None) -> policy.LlamaConfig:
    """The model of a configuration, for the platform that programs are made for; no weights.

    `shape` is a name of SHAPES or the numbers of NUMBERS; without it the model is that of
    `sft.path` or `policy.path` (a folder with a config.json, or a hub id that is known here), or
    the configuration's own architecture. Raises UserError where that says nothing.
    """
    model = replace(_found(config, shape), compute_dtype=start.compute_dtype(config))
    return start.with_attention(config, model)


def _found(config: Config, shape: str | None) -> policy.LlamaConfig:
    if shape is not None:
        return _named(shape)
    path = config.sft.path or config.policy.path
    if path is None:
        return _of_architecture(config)
    file = Path(path).expanduser() / "config.json"
    if file.is_file():
        return policy.LlamaConfig.from_hf(json.loads(file.read_text()))
    if path in _HUB:
        return SHAPES[_HUB[path]]
    raise UserError(
        f"the model is {path!r}, which is no folder here, and its shape is not known: give "
        f"--shape={'|'.join(SHAPES)} or --shape={NUMBERS}"
    )


def _named(shape: str) -> policy.LlamaConfig:
    if shape in SHAPES:
        return SHAPES[shape]
    numbers = shape.split(",")
    if len(numbers) != len(NUMBERS.split(",")) or not all(n.isdecimal() for n in numbers):
        raise ConfigError(
            f"--shape is {shape!r}; {nearest(shape, SHAPES)}, or give the numbers {NUMBERS}"
        )
    hidden, layers, heads, kv_heads, head_dim, ffn, vocabulary = map(int, numbers)
    return policy.LlamaConfig(vocabulary, hidden, layers, heads, kv_heads, ffn, head_dim)


def _of_architecture(config: Config) -> policy.LlamaConfig:
    task = tasks.get(config.task.name, **config.task.arguments())
    return start.random_model(config, start.find_tokenizer(config, task), "float32")
