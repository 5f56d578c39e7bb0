"""The training loop: SFT, reinforcement learning, evaluation, and the run folder."""

from vinejax.train.endpoint import measure_endpoint
from vinejax.train.folder import read_config
from vinejax.train.run import load_policy, run
from vinejax.train.standalone import evaluate_model, evaluate_run

__all__ = [
    "evaluate_model",
    "evaluate_run",
    "load_policy",
    "measure_endpoint",
    "read_config",
    "run",
]
