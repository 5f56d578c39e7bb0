"""Named configurations: one file an experiment, each with `config(algorithm) -> Config`.

The functions give the set-up and what the paper gives VinePPO in it; with another method, the
numbers of that method (`vinejax.config.with_algorithm`, and in the file those of both).
"""

import importlib
import pkgutil

from vinejax.config import Config, ConfigError, nearest


def names() -> tuple[str, ...]:
    """Names of all configurations, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str, algorithm: str | None = None) -> Config:
    """The configuration `name`, of VinePPO or of another method.

    Raises ConfigError with the nearest names when there is none.
    """
    if name not in names():
        raise ConfigError(f"there is no config {name!r}; {nearest(name, names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    return module.config() if algorithm is None else module.config(algorithm)
