"""A configuration as data: dotted names, its JSON form, its fingerprint, and differences."""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from vinejax.config.errors import ConfigError, nearest
from vinejax.config.fields import OPTIONS, Config, TaskConfig


def get(config: Any, name: str) -> Any:
    """The value of a dotted field name, for example `update.learning_rate`."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every leaf field, in order of declaration."""
    for entry in dataclasses.fields(config):
        name, value = prefix + entry.name, getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            yield from flatten(value, name + ".")
        else:
            yield name, value


def to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dictionary that JSON can hold; `from_dict` is the inverse."""
    return dataclasses.asdict(config)


def from_dict(data: Mapping[str, Any]) -> Config:
    """Config of what `to_dict` (or its JSON) gave; a missing field takes its default.

    Raises ConfigError for an unknown field (with the nearest name) and for a wrong type.
    """
    return _build(Config, data, "")


def _build(cls: type, data: Any, prefix: str) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{prefix.rstrip('.') or 'config'} is {data!r}: it must be a group of fields"
        )
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in hints:
            raise ConfigError(f"unknown field {prefix}{name}; {nearest(str(name), list(hints))}")
    if cls is TaskConfig and isinstance(data.get("options"), Mapping):
        hints["options"] = OPTIONS.get(str(data.get("name", TaskConfig.name)), types.NoneType)
    return cls(**{name: _read(hints[name], value, prefix + name) for name, value in data.items()})


def _read(hint: Any, value: Any, name: str) -> Any:
    """`value` if it fits the field's type; an integer is read as a float where one is asked for."""
    options = [hint]
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        options = [option for option in hint.__args__ if option is not types.NoneType]
    for option in options:
        if dataclasses.is_dataclass(option):
            return _build(typing.cast(type, option), value, name + ".")
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            kind = typing.get_args(option)[0]
            return tuple(_read(kind, one, f"{name}[{i}]") for i, one in enumerate(value))
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(option, type) and type(value) is option:
            return value
    raise ConfigError(f"{name} is {value!r}: it must be {_describe(hint)}")


def _describe(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(option) for option in hint.__args__)
    if typing.get_origin(hint) is Literal:
        return " or ".join(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list of {_describe(typing.get_args(hint)[0])}"
    return "null" if hint is types.NoneType else hint.__name__


def fingerprint(config: Config) -> str:
    """16 hexadecimal digits that name the resolved configuration."""
    data = to_dict(from_dict(to_dict(config)))  # 2 and 2.0 are the same rate
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# A resumed run may differ here: how long, how often, on which devices and in how much memory, but
# not in what is learned. (Mesh, engine and micro-batch sizes change rounding only.)
RESUME_MAY_CHANGE = (
    "iterations",
    "evaluation.every",
    "checkpoint.every",
    "checkpoint.keep",
    "checkpoint.keep_period",
    "checkpoint.keep_rollouts",
    "grading.workers",
    "update.microbatch",
    "update.max_skipped",
    "sft.microbatch",
    "policy.remat",
    "mesh",
    "engine",
)


def fixed_length(config: Config) -> str | None:
    """Why another number of iterations would have made it another run from the start, or None."""
    update = config.update
    if config.algorithm in ("restem", "dpo_positive"):
        return f"the rounds of {config.algorithm} are shares of the whole run"
    if update.decay != "constant" or update.warmup_ratio > 0:
        return (
            "the learning rate of each update follows from the length of the whole run "
            f"(update.warmup_ratio is {update.warmup_ratio}, update.decay {update.decay!r})"
        )
    return None


def differences(old: Config, new: Config) -> tuple[str, ...]:
    """Fields that forbid resuming a run of `old` as `new`, each as "name: old -> new".

    `iterations` may change only where `fixed_length` has no reason against it.
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    allowed = set(RESUME_MAY_CHANGE)
    if fixed_length(old) is not None:
        allowed.remove("iterations")
    return tuple(
        f"{name}: {before.get(name)!r} -> {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and not allowed & {name, name.split(".")[0]}
    )
