"""Methods by name. A method is one class, `base.Algorithm`: what follows sampling in an iteration.

Importing this loads no method: the checks of a configuration need the names alone.
"""

import importlib
from typing import TYPE_CHECKING

from vinejax.config import ConfigError, nearest

if TYPE_CHECKING:
    from vinejax.train.algorithms.base import Algorithm

# Name -> class, or "module:Class" until it is first used.
_ALGORITHMS: "dict[str, type[Algorithm] | str]" = {
    name: f"{__name__}.{name}:{cls}"
    for name, cls in {
        "vineppo": "VinePPO",
        "ppo": "PPO",
        "grpo": "GRPO",
        "rloo": "RLOO",
        "restem": "RestEM",
        "dpo_positive": "DpoPositive",
        "sft": "Sft",
    }.items()
}


def get(name: str) -> "type[Algorithm]":
    """The class of the method `name`; "module:Class" names one directly.

    Raises ConfigError for an unknown name, with the nearest one, and for what is no method.
    """
    entry = _ALGORITHMS.get(name, name)
    if not isinstance(entry, str):
        return entry
    if ":" not in entry:
        raise ConfigError(f"algorithm is {name!r}, which does not exist; {nearest(name, names())}")
    module, _, attribute = entry.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"algorithm: cannot import {entry!r} ({error}); name it module:Class and put the "
            "module's folder on PYTHONPATH"
        ) from error
    return _checked(name, cls)


def register(name: str, cls: "type[Algorithm]") -> None:
    """Makes a class known as `name`; ConfigError if the name belongs to another class."""
    if name in _ALGORITHMS and get(name) is not cls:
        raise ConfigError(f"there is a method {name!r} already; register yours as another one")
    _ALGORITHMS[name] = _checked(name, cls)


def names() -> list[str]:
    """Names of the methods that are built in or registered."""
    return sorted(_ALGORITHMS)


def _checked(name: str, cls: "type[Algorithm]") -> "type[Algorithm]":
    from vinejax.train.algorithms.base import Algorithm

    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError(
            f"algorithm {name!r}: {cls!r} is no subclass of algorithms.base.Algorithm"
        )
    return cls
