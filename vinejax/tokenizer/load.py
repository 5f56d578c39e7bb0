"""Finds a tokenizer's files, in a folder or on the Hugging Face hub."""

from pathlib import Path

from vinejax.config import UserError
from vinejax.tokenizer.base import Tokenizer
from vinejax.tokenizer.fast import load_fast
from vinejax.tokenizer.pieces import load_pieces

FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
    "generation_config.json",
)


def load_tokenizer(path_or_hub_id: str | Path, revision: str | None = None) -> Tokenizer:
    """The tokenizer in a folder, in a `tokenizer.model` or `tokenizer.json` file, or on the hub.

    A folder's `tokenizer.json` is preferred to its `tokenizer.model`. Code from a repository is
    never run. Raises UserError, with the remedy, if nothing readable is there.
    """
    path = Path(path_or_hub_id).expanduser()
    if path.is_file():
        return load_fast(path.parent) if path.suffix == ".json" else load_pieces(path)
    folder = path if path.is_dir() else _download(str(path_or_hub_id), revision)
    if (folder / "tokenizer.json").is_file():
        return load_fast(folder)
    if (folder / "tokenizer.model").is_file():
        return load_pieces(folder / "tokenizer.model")
    raise UserError(
        f"policy.tokenizer: {path_or_hub_id} holds neither tokenizer.json nor tokenizer.model; "
        "copy one of them there, or set policy.tokenizer to a folder that has one"
    )


def _download(name: str, revision: str | None) -> Path:
    remedy = "set policy.path or policy.tokenizer to an existing folder or a hub id (owner/name)"
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UserError(f"policy.tokenizer: there is no folder {name!r}; {remedy}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:
        raise UserError(
            f"policy.tokenizer: {name!r} is no folder here and could not be fetched from the hub "
            f"({type(error).__name__}); {remedy}"
        ) from error
