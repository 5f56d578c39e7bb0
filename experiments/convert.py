"""Convert a Hugging Face folder with .bin weights to safetensors.

    python -m experiments.convert --model=PATH --to=PATH

.bin files are pickles: they are read here, once, with torch's `weights_only=True`, which runs no
code from them; vinejax itself never reads them. Tensors keep name, type and value. Configuration,
tokenizer and README.md, which may name a licence, are copied. PATH may be a hub id.
"""

import json
import pickle
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tyro

from experiments import cli
from vinejax.config import UserError
from vinejax.policy import LlamaConfig, folder, names

_BIN = "pytorch_model.bin"
_BIN_INDEX = "pytorch_model.bin.index.json"


@dataclass(frozen=True)
class ConvertFlags:
    """Flags of this command."""

    model: str = tyro.MISSING  # Folder or hub id of a model with .bin weights.
    to: Path = tyro.MISSING  # Folder to write; an earlier export there is replaced.
    json: bool = False  # Print the result as one JSON line.


def convert(model: str, to: Path) -> dict[str, Any]:
    """Write `to`; returns its path, and how many tensors and files it has."""
    torch = _torch()
    source = folder.locate(model)
    raw = folder.read_json(source / "config.json")
    config = LlamaConfig.from_hf(raw)
    files = _binaries(folder.locate(model, weights=folder.BINARIES))
    where: dict[str, str] = {}
    total = 0
    with folder.replacing(to) as target:
        for file in files:
            tensors = _load(torch, file, config)
            name = file.name.replace("pytorch_model", "model").replace(".bin", ".safetensors")
            _save(tensors, target / name)
            where |= dict.fromkeys(tensors, name)
            total += sum(tensor.nbytes for tensor in tensors.values())
        if len(files) > 1:
            index = {"metadata": {"total_size": total}, "weight_map": where}
            (target / folder.INDEX).write_text(json.dumps(index, indent=2) + "\n")
        for file in sorted(source.iterdir()):
            if folder.is_exported(file.name) and "safetensors" not in file.name:
                shutil.copyfile(file, target / file.name)
    return {"to": str(to), "tensors": len(where), "files": len(files)}


def _torch() -> ModuleType:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "experiments.convert needs torch to read .bin files: pip install torch "
            "--index-url https://download.pytorch.org/whl/cpu"
        ) from None
    return torch


def _binaries(source: Path) -> list[Path]:
    if (source / _BIN).is_file():
        return [source / _BIN]
    if (source / _BIN_INDEX).is_file():
        return folder.indexed_files(source / _BIN_INDEX)
    raise UserError(f"{source} has no {_BIN}; if it has safetensors, use it as it is")


def _load(torch: ModuleType, file: Path, config: LlamaConfig) -> dict[str, Any]:
    """The file's tensors; the second copy of a tied head and derived buffers are left out."""
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{file} is damaged or holds more than tensors ({reason}); fetch it again from a "
            "source you trust"
        ) from error
    if not isinstance(tensors, dict) or not all(torch.is_tensor(t) for t in tensors.values()):
        raise UserError(f"{file} holds no table of tensors; it is no model checkpoint")
    drop = {name for name in tensors if names.is_ignorable(name)}
    if config.tied:
        drop.add(names.HEAD)
    # Clones: safetensors refuses tensors that share memory.
    return {name: t.clone().contiguous() for name, t in tensors.items() if name not in drop}


def _save(tensors: dict[str, Any], file: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, file, metadata={"format": "pt"})


def run(argv: list[str]) -> None:
    """Parse and convert; see `ConvertFlags` for the arguments."""
    flags = cli.parse_flags(argv, ConvertFlags(), "python -m experiments.convert", __doc__ or "")
    result = convert(flags.model, flags.to)
    if flags.json:
        cli.print_json(result)
    else:
        print(f"{result['tensors']} tensors in {result['files']} file(s) written to {result['to']}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
