"""Where an exported policy comes from: its base model, that one's licence, names fit to publish.

A licence is read, never inferred: from the YAML header of the base folder's README.md, from its
licence file if that begins as one of the two texts known here, or from its config.json.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from vinejax import policy
from vinejax.config import Config
from vinejax.policy import folder

CARD = "README.md"
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
# First lines of a text -> the hub's name of the licence. Any other text has to be read by people.
_TEXTS = {"apache license version 2.0,": "apache-2.0", "mit license copyright": "mit"}
_PLACES = ("path", "tokenizer")  # fields that hold folders or hub ids
_PLACE = re.compile(r"(~|\.{1,2})?[\\/].+|[A-Za-z]:[\\/].+")


@dataclass(frozen=True)
class Licence:
    """What a model folder says of its licence."""

    where: str  # the file that says so
    identifier: str | None = None  # as the hub spells it; None: there is only a text
    name: str | None = None  # of a licence that the hub calls "other"
    link: str | None = None
    begins: str | None = None  # the first line of a text that is not known here


@dataclass(frozen=True)
class Base:
    """The model that training began with."""

    name: str  # hub id, or the folder's own name
    on_hub: bool
    licence: Licence | None  # None: the folder does not say


def base_of(config: Config) -> Base | None:
    """The base model of a run; None for one that began with random weights.

    Raises UserError if the folder or hub repository cannot be found.
    """
    path, revision = config.sft.path, None
    if path is None:
        path, revision = config.policy.path, config.policy.revision
    if path is None:
        return None
    return Base(shown(path), on_hub(path), licence_of(folder.locate(path, revision)))


def licence_of(place: Path) -> Licence | None:
    """What the folder of a model says of its licence, the first of three places that says it."""
    return _in_card(place) or _in_text(place) or _in_config(place)


def _in_card(place: Path) -> Licence | None:
    try:
        text = (place / CARD).read_text("utf-8")
        header = ModelCard(text, ignore_metadata_errors=True).data.to_dict()
    except Exception:  # a card that no one can read says nothing; yaml and the hub raise many types
        return None
    identifier = _word(header.get("license"))
    if identifier is None:
        return None
    link = _word(header.get("license_link"))
    if link is not None and not link.startswith("https://"):
        link = None  # a file that is not exported
    return Licence(CARD, identifier, _word(header.get("license_name")), link)


def _in_text(place: Path) -> Licence | None:
    for name in _LICENCES:
        if not (place / name).is_file():
            continue
        text = (place / name).read_text("utf-8", errors="replace")
        lines = [line for found in text.splitlines() if (line := " ".join(found.split()))]
        for start, identifier in _TEXTS.items():
            if " ".join(lines[:2]).lower().startswith(start):
                return Licence(name, identifier)
        if lines:
            return Licence(name, begins=lines[0][:100])
    return None


def _in_config(place: Path) -> Licence | None:
    try:
        found = json.loads((place / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    identifier = _word(found.get("license")) if isinstance(found, dict) else None
    return None if identifier is None else Licence("config.json", identifier)


def _word(value: object) -> str | None:
    return (" ".join(value.split()) or None) if isinstance(value, str) else None


def shown(path: str) -> str:
    """A hub id as it is; of a folder its own name, without those above it."""
    return path if on_hub(path) else re.split(r"[\\/]", path.rstrip("\\/"))[-1]


def on_hub(path: str) -> bool:
    """Whether `path` is a hub id, and not a folder of that name."""
    return policy.is_hub_id(path) and not Path(path).expanduser().is_dir()


def published(tree: Any, field: str = "") -> Any:
    """A configuration as plain data, with folders by their own names only."""
    if isinstance(tree, Mapping):
        return {name: published(value, str(name)) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [published(value, field) for value in tree]
    if isinstance(tree, str) and (field in _PLACES or _PLACE.fullmatch(tree)):
        return shown(tree)
    return tree
