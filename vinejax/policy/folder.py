"""Hugging Face folders: where they are, what they hold, and writing one whole or not at all.

All refusals name the folder or file and the remedy. Nothing here knows what a tensor means.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vinejax.config import UserError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SAFETENSORS = ("*.safetensors",)
BINARIES = ("*.bin",)
_SMALL_FILES = (
    "*.json", "tokenizer.model", "vocab.*", "merges.txt", "*.jinja", "README.md", "LICENSE*",
)  # fmt: skip
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
# What an exported folder may hold; a folder with anything else is not ours to replace.
_EXPORTED = re.compile(
    r".*\.safetensors|.*\.safetensors\.index\.json|(generation_|tokenizer_|vinejax_)?config\.json|"
    r"README\.md|tokenizer\.(json|model)|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|"
    r"merges\.txt|chat_template\.jinja"
)


def locate(path: str | Path, revision: str | None = None, weights: tuple[str, ...] = ()) -> Path:
    """The folder itself, or a local copy of a hub repository with these kinds of weights."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists() or not is_hub_id(str(path)):
        raise UserError(
            f"policy.path={str(path)!r}: there is no such folder; "
            "give a Hugging Face model folder or a hub id like owner/name"
        )
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(
                str(path), revision=revision, allow_patterns=[*_SMALL_FILES, *weights]
            )
        )
    except Exception as error:  # the client raises a dozen unrelated types
        raise UserError(
            f"policy.path={str(path)!r}: no such folder, and the hub did not give it "
            f"({type(error).__name__}: {str(error).partition(chr(10))[0]}); check the name and the "
            "network, or download it first and give the folder"
        ) from error


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/name."""
    return _HUB_ID.fullmatch(name) is not None


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UserError if it is missing, broken or not an object."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{file} is missing: {file.parent} is no Hugging Face model folder"
        ) from None
    except (ValueError, OSError) as error:
        raise UserError(f"{file} cannot be read ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise UserError(f"{file} holds a {type(value).__name__}, not an object; fetch it again")
    return value


def indexed_files(index: Path) -> list[Path]:
    """The files that a weight index names, all of them present beside it."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise UserError(f"{index} has no weight_map; fetch it again")
    files = [index.parent / name for name in sorted(set(table.values()))]
    for file in files:
        if file.parent != index.parent or not file.is_file():
            raise UserError(f"{file} is missing, {index.name} names it; fetch it again")
    return files


def weight_files(folder: Path, path: str | Path) -> list[Path]:
    """The safetensors files of the folder that `locate(path)` found, or UserError with remedy."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return indexed_files(folder / INDEX)
    convert = f"python -m experiments.convert --model={path} --to=PATH"
    if any(folder.glob("*.bin")) or any(folder.glob("*.bin.index.json")):
        raise UserError(f"{folder} has only .bin weights, which are pickles; convert: {convert}")
    raise UserError(f"{folder} has no {WEIGHTS}; fetch it, or convert .bin weights: {convert}")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A folder to write to: it becomes `path` when the block ends well, else it vanishes.

    An earlier export at `path` is replaced; anything else that is not empty is refused, before
    work.
    """
    target = Path(path).expanduser().absolute()
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.writing-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    fresh.mkdir()
    try:
        yield fresh
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def is_exported(name: str) -> bool:
    """True for the names of files that a model folder consists of (weights as safetensors)."""
    return _EXPORTED.fullmatch(name) is not None


def _check_replaceable(target: Path) -> None:
    if not target.exists():
        return
    names = [entry.name for entry in target.iterdir()] if target.is_dir() else [target.name]
    strange = [name for name in sorted(names) if not is_exported(name)]
    if not target.is_dir() or strange or (names and "config.json" not in names):
        raise UserError(
            f"{target} exists and is not an exported model folder (it holds "
            f"{', '.join(strange[:3]) or 'no config.json'}); choose another path or empty it"
        )
