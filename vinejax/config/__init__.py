"""The configuration of a run: frozen records, the rules between their fields, and their JSON form.

It knows nothing of JAX, of files, or of what the tasks do: it checks what can be known before
anything is loaded.
"""

from vinejax.config.choices import choices, with_preset
from vinejax.config.data import (
    RESUME_MAY_CHANGE,
    differences,
    fingerprint,
    flatten,
    from_dict,
    get,
    to_dict,
)
from vinejax.config.errors import (
    ConfigError,
    Preempted,
    RunError,
    StorageError,
    UserError,
    nearest,
)
from vinejax.config.fields import (
    ALGORITHMS,
    OPTIONS,
    TASKS,
    AdvantagesConfig,
    Architecture,
    CheckpointConfig,
    Config,
    CriticConfig,
    DpoConfig,
    EngineConfig,
    EvaluationConfig,
    GradingConfig,
    Gsm8kOptions,
    LedgerOptions,
    MathOptions,
    MeshConfig,
    PolicyConfig,
    RestemConfig,
    SamplingConfig,
    SftConfig,
    TaskConfig,
    TaskOptions,
    UpdateConfig,
    ValuesConfig,
)
from vinejax.config.rules import validate
from vinejax.config.values import every_n_tokens, values_plan
from vinejax.config.variants import with_algorithm

__all__ = [
    "ALGORITHMS",
    "OPTIONS",
    "RESUME_MAY_CHANGE",
    "TASKS",
    "AdvantagesConfig",
    "Architecture",
    "CheckpointConfig",
    "Config",
    "ConfigError",
    "CriticConfig",
    "DpoConfig",
    "EngineConfig",
    "EvaluationConfig",
    "GradingConfig",
    "Gsm8kOptions",
    "LedgerOptions",
    "MathOptions",
    "MeshConfig",
    "PolicyConfig",
    "Preempted",
    "RestemConfig",
    "RunError",
    "SamplingConfig",
    "SftConfig",
    "StorageError",
    "TaskConfig",
    "TaskOptions",
    "UpdateConfig",
    "UserError",
    "ValuesConfig",
    "choices",
    "differences",
    "every_n_tokens",
    "fingerprint",
    "flatten",
    "from_dict",
    "get",
    "nearest",
    "to_dict",
    "validate",
    "values_plan",
    "with_algorithm",
    "with_preset",
]
