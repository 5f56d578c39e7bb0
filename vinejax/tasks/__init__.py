"""Tasks by name. A task is everything that is specific to one kind of problem; see `tasks.base`.

Importing this loads no task and no JAX: grading workers import it.
"""

import importlib
import inspect
from typing import Any

from vinejax.config import ConfigError, nearest
from vinejax.tasks.base import Problem, Task

__all__ = ["Problem", "Task", "find", "get", "names", "options", "register"]

# Name -> class, or "module:class" until it is first used.
_TASKS: dict[str, type[Task] | str] = {
    "gsm8k": "vinejax.tasks.gsm8k:GSM8K",
    "ledger": "vinejax.tasks.ledger:Ledger",
    "math": "vinejax.tasks.math:Math",
}


def get(name: str, **options: Any) -> Task:
    """The task called `name`, made with `options`; "module:Class" names a class directly.

    Raises ConfigError for an unknown name or option, with the nearest valid one.
    """
    cls = find(name)
    known = _options(cls)
    for option in options:
        if option not in known:
            raise ConfigError(f"task {name!r} has no option {option!r}; {nearest(option, known)}")
    return cls(**options)


def register(name: str, cls: type[Task]) -> None:
    """Makes a class known as `name`; ConfigError if the name belongs to another class."""
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise ConfigError(f"task {name!r}: {cls!r} is not a subclass of vinejax.tasks.Task")
    if name in _TASKS and find(name) is not cls:
        raise ConfigError(f"there is a task {name!r} already; register yours under another name")
    _TASKS[name] = cls


def names() -> list[str]:
    """Names of the tasks that are built in or registered."""
    return sorted(_TASKS)


def options(name: str) -> frozenset[str]:
    """Names of the options that the task takes."""
    return _options(find(name))


def find(name: str) -> type[Task]:
    """The class of a task."""
    entry = _TASKS.get(name, name)
    if not isinstance(entry, str):
        return entry
    if ":" not in entry:
        raise ConfigError(f"task.name: there is no task {name!r}; {nearest(name, names())}")
    module, _, attribute = entry.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"task.name: cannot import {entry!r} ({error}); name it module:Class and put the "
            "module's folder on PYTHONPATH"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise ConfigError(f"task.name: {entry!r} is not a subclass of vinejax.tasks.Task")
    if name in _TASKS:
        _TASKS[name] = cls
    return cls


def _options(cls: type[Task]) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)
