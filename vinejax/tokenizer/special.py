"""Which ids are special: read from the files that lie beside a tokenizer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vinejax.config import UserError

ROLES = ("bos", "eos", "pad", "unk")


@dataclass(frozen=True)
class SpecialTokens:
    """Names of the special tokens; None = not declared."""

    eos: str
    bos: str | None = None
    pad: str | None = None
    unk: str | None = None

    def fields(self) -> dict[str, str]:
        """As `tokenizer_config.json` writes them; what was not declared is left out."""
        return {f"{role}_token": getattr(self, role) for role in ROLES if getattr(self, role)}


def read_json(path: Path) -> dict:
    """The object in a JSON file; {} if there is no such file, UserError if it is broken."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); fetch the file again") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_special(folder: Path, name_of: Callable[[int], str | None]) -> SpecialTokens:
    """Special tokens of the tokenizer in `folder`; `name_of` gives the token of an id.

    Order: tokenizer_config.json, special_tokens_map.json (both name tokens), then
    generation_config.json, config.json (both give ids). A role that none of them names is None,
    except eos, without which nothing could end: UserError.
    """
    named = [
        read_json(folder / file) for file in ("tokenizer_config.json", "special_tokens_map.json")
    ]
    numbered = [read_json(folder / file) for file in ("generation_config.json", "config.json")]
    found: dict[str, str] = {}
    for role in ROLES:
        names = [_content(config.get(f"{role}_token")) for config in named]
        names += [_name(config.get(f"{role}_token_id"), name_of) for config in numbered]
        name = next((name for name in names if name), None)
        if name:
            found[role] = name
    if "eos" not in found:
        raise UserError(
            f"{folder} names no end-of-sequence token; add eos_token to its tokenizer_config.json"
        )
    return SpecialTokens(**found)


def _content(value: object) -> str | None:
    """A token's text: files hold it bare or as {"content": ...}."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _name(value: object, name_of: Callable[[int], str | None]) -> str | None:
    """The token of an id; of several (Llama 3 lists its end tokens) the first."""
    if isinstance(value, list):
        value = value[0] if value else None
    # -1 stands for "none" in Llama's configurations.
    return name_of(value) if isinstance(value, int) and value >= 0 else None
