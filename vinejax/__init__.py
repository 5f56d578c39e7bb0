"""vinejax: VinePPO, reinforcement learning of language models with measured state values, in JAX.

The public surface is six modules: `tasks`, `policy`, `sampler`, `vine`, `advantages`, `update`.
They load on first use (PEP 562), because the processes that grade answers import `vinejax.tasks`
and must not start JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinejax import advantages, policy, sampler, tasks, update, vine

__all__ = ["advantages", "policy", "sampler", "tasks", "update", "vine"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"vinejax.{name}")
    raise AttributeError(f"module 'vinejax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
