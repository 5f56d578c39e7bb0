"""Updates of the policy's weights, by reinforcement and by demonstration."""

from vinejax.update.optimizer import Optimizer, learning_rate, warmup_steps
from vinejax.update.sft import SftBatch, SftHyper, SftMetrics, make_sft_step
from vinejax.update.state import State, init, shardings
from vinejax.update.step import Batch, Hyper, Metrics, Sharded, make_step, step

__all__ = [
    "Batch",
    "Hyper",
    "Metrics",
    "Optimizer",
    "SftBatch",
    "SftHyper",
    "SftMetrics",
    "Sharded",
    "State",
    "init",
    "learning_rate",
    "make_sft_step",
    "make_step",
    "shardings",
    "step",
    "warmup_steps",
]
