"""Named configurations: one file an experiment, each with a function `config() -> Config`."""

import importlib
import pkgutil

from vinejax.config import Config, ConfigError, nearest


def names() -> tuple[str, ...]:
    """Names of all configurations, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> Config:
    """The configuration `name`; raises ConfigError with the nearest names when there is none."""
    if name not in names():
        raise ConfigError(f"there is no config {name!r}; {nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}").config()
