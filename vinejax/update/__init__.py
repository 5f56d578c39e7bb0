"""Updates of weights: of the policy, by reinforcement and by example, and of PPO's critic."""

from vinejax.update.critic import (
    CriticBatch,
    CriticHyper,
    CriticMetrics,
    critic_axes,
    init_critic,
    make_critic_step,
    make_values,
)
from vinejax.update.dpo import DpoHyper, DpoMetrics, PairBatch, make_dpo_step
from vinejax.update.gradient import Gradient, Weighed, make_gradient
from vinejax.update.optimizer import Optimizer, learning_rate, warmup_steps
from vinejax.update.sft import SftBatch, SftHyper, SftMetrics, make_sft_step
from vinejax.update.state import State, init, shardings
from vinejax.update.step import Batch, Hyper, Metrics, Sharded, make_step, step

__all__ = [
    "Batch",
    "CriticBatch",
    "CriticHyper",
    "CriticMetrics",
    "DpoHyper",
    "DpoMetrics",
    "Gradient",
    "Hyper",
    "Metrics",
    "Optimizer",
    "PairBatch",
    "SftBatch",
    "SftHyper",
    "SftMetrics",
    "Sharded",
    "State",
    "Weighed",
    "critic_axes",
    "init",
    "init_critic",
    "learning_rate",
    "make_critic_step",
    "make_dpo_step",
    "make_gradient",
    "make_sft_step",
    "make_step",
    "make_values",
    "shardings",
    "step",
    "warmup_steps",
]
