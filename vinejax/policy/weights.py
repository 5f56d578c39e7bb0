"""Hugging Face folders to parameter trees and back, tensor by tensor, without torch.

`load_hf` and `save_hf` are inverse to each other bit by bit, dtypes included. Everything that is
not supported is refused by name before any weight is read.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import save_file

from vinejax.config import UserError
from vinejax.policy import folder, names
from vinejax.policy.config import LlamaConfig, Remat
from vinejax.policy.llama import Params, shapes
from vinejax.policy.numerics import platform
from vinejax.tokenizer import Tokenizer, load_tokenizer

_DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# transformers' default; a shard is written from host memory in one piece.
SHARD_BYTES = 5 * 10**9


def load_hf(
    path: str | Path,
    compute_dtype: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    remat: Remat = "none",
    shardings: Any = None,
) -> tuple[LlamaConfig, Params]:
    """Read a folder or hub repository with safetensors weights.

    Parameters keep their type on disk unless `dtype` ("float32", "bfloat16") is given.
    `compute_dtype` "auto" is float32 on CPU, bfloat16 elsewhere. `shardings`, a tree like the
    parameters', places every leaf as soon as it is read. `num_tokens` is the size of the
    tokenizer in the folder, if there is one. Raises UserError naming field, tensor or file.
    """
    config = load_config(path, compute_dtype, revision, remat)
    source = folder.locate(path, revision, folder.SAFETENSORS)
    with ExitStack() as stack:
        tensors = _open(folder.weight_files(source, path), stack)
        _check(config, tensors, source)
        return config, _read(config, tensors, dtype, shardings)


def load_config(
    path: str | Path,
    compute_dtype: str = "auto",
    revision: str | None = None,
    remat: Remat = "none",
) -> LlamaConfig:
    """What `load_hf` returns first, without reading the weights."""
    source = folder.locate(path, revision)
    raw = folder.read_json(source / "config.json")
    try:
        config = LlamaConfig.from_hf(raw, resolve_dtype(compute_dtype), remat)
        return _with_tokenizer(config, source)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def resolve_dtype(compute_dtype: str) -> str:
    """ "auto" by platform: float32 on CPU, where bfloat16 is emulated, bfloat16 elsewhere."""
    if compute_dtype != "auto":
        return compute_dtype
    return "float32" if platform() == "cpu" else "bfloat16"


def _with_tokenizer(config: LlamaConfig, source: Path) -> LlamaConfig:
    if not any((source / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        return config
    count = load_tokenizer(str(source)).vocab_size
    if count > config.vocab_size:
        raise UserError(
            f"the tokenizer has ids up to {count - 1}, the embedding only {config.vocab_size} rows "
            "(config.json: vocab_size); the tokenizer is another model's, give the model's own"
        )
    return replace(config, num_tokens=count)


def _open(files: Iterable[Path], stack: ExitStack) -> dict[str, Any]:
    """Name -> lazy tensor of all files. A damaged file is named."""
    tensors: dict[str, Any] = {}
    for file in files:
        try:
            # mmap: nothing but the header is read here.
            handle = stack.enter_context(safetensors.safe_open(file, framework="numpy"))
        except (safetensors.SafetensorError, OSError) as error:
            raise UserError(f"{file} is truncated or damaged ({error}); fetch it again") from error
        found = handle.keys()
        tensors |= {name: handle.get_slice(name) for name in found}
    return tensors


def _check(config: LlamaConfig, tensors: dict[str, Any], source: Path) -> None:
    """Compare names, shapes and types with the configuration; report all that disagree at once."""
    expected = {entry.name: entry for entry in names.entries(config)}
    faults = [f"missing {name}" for name in expected if name not in tensors]
    for name, tensor in tensors.items():
        shape = tuple(tensor.get_shape())
        if name not in expected:
            if not names.is_ignorable(name) and not _is_tied_head(name, config, tensors):
                faults.append(f"unexpected {name}")
        elif shape != expected[name].shape:
            faults.append(f"{name} has shape {shape}, config.json says {expected[name].shape}")
        elif tensor.get_dtype() not in _DTYPES:
            faults.append(f"{name} has type {tensor.get_dtype()}, not {', '.join(_DTYPES)}")
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise UserError(
            f"{source}: the weights do not fit config.json: {'; '.join(faults[:5])}{more}; "
            "correct config.json or fetch the model again"
        )


def _is_tied_head(name: str, config: LlamaConfig, tensors: dict[str, Any]) -> bool:
    """A tied model may carry its head a second time; one that differs would be lost silently."""
    if name != names.HEAD or not config.tied or names.EMBED not in tensors:
        return False
    return np.array_equal(tensors[name][:], tensors[names.EMBED][:])


def _read(
    config: LlamaConfig, tensors: dict[str, Any], dtype: str | None, shardings: Any
) -> Params:
    """Fill one leaf after the other in host memory, then hand it to its devices."""
    by_leaf: dict[tuple[str, bool], list[names.Entry]] = {}
    for entry in names.entries(config):
        by_leaf.setdefault((entry.leaf, entry.layer is not None), []).append(entry)
    tree = shapes(config)
    for (leaf, is_layer), group in by_leaf.items():
        branch = tree["layers"] if is_layer else tree
        kind = np.dtype(dtype) if dtype else _common_type(group, tensors)
        array = np.empty(branch[leaf], kind)
        for entry in group:
            array[... if entry.layer is None else entry.layer] = entry.flip(tensors[entry.name][:])
        to = None if shardings is None else (shardings["layers"] if is_layer else shardings)[leaf]
        branch[leaf] = _place(array, to)
    return tree


def _common_type(group: list[names.Entry], tensors: dict[str, Any]) -> np.dtype:
    """Layers are stacked; if they differ in type, fp32 holds them all exactly."""
    kinds = {_DTYPES[tensors[entry.name].get_dtype()] for entry in group}
    return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)


def _place(array: np.ndarray, sharding: Any) -> jax.Array:
    if sharding is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def save_hf(
    path: str | Path,
    config: LlamaConfig,
    params: Params,
    tokenizer: Tokenizer | None = None,
    generation: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write a folder that transformers loads: configuration, weights as they are, tokenizer.

    `params` must be addressable from this process. `generation` are more fields of
    generation_config.json, `texts` more files by name (such as README.md). The folder appears whole
    or not at all; an earlier export at `path` is replaced, anything else there is refused
    (UserError).
    """
    raw = {**config.to_hf(), "torch_dtype": str(params["embed"].dtype)}
    ids = {name: raw[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    with folder.replacing(path) as target:
        _write_json(target / "config.json", raw)
        known = {name: value for name, value in ids.items() if value is not None}
        _write_json(target / "generation_config.json", known | dict(generation or {}))
        for name, text in (texts or {}).items():
            (target / name).write_text(text, encoding="utf-8")
        _write_weights(target, config, params)
        if tokenizer is not None:
            tokenizer.save(str(target))


def _write_weights(target: Path, config: LlamaConfig, params: Params) -> None:
    shards: list[list[names.Entry]] = [[]]
    held = total = 0
    for entry in names.entries(config):
        size = int(np.prod(entry.shape)) * _leaf(params, entry).dtype.itemsize
        if shards[-1] and held + size > SHARD_BYTES:
            shards.append([])
            held = 0
        shards[-1].append(entry)
        held, total = held + size, total + size
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = folder.WEIGHTS
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        arrays = {entry.name: _tensor(params, entry) for entry in shard}
        # transformers refuses files without this mark.
        save_file(arrays, target / file, metadata={"format": "pt"})
        (target / file).chmod(0o644)  # the library makes it readable by its owner only
        where |= {entry.name: file for entry in shard}
    if len(shards) > 1:
        _write_json(target / folder.INDEX, {"metadata": {"total_size": total}, "weight_map": where})


def _leaf(params: Params, entry: names.Entry) -> Any:
    return (params if entry.layer is None else params["layers"])[entry.leaf]


def _tensor(params: Params, entry: names.Entry) -> np.ndarray:
    array = _leaf(params, entry)
    array = np.asarray(array if entry.layer is None else array[entry.layer])
    array = np.ascontiguousarray(entry.flip(array))
    if array.shape != entry.shape:
        raise ValueError(f"{entry.name} has shape {array.shape}, the config says {entry.shape}")
    return array


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
