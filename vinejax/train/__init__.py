"""The training loop: SFT, reinforcement learning, evaluation, and the run folder."""

from vinejax.train.run import load_policy, run

__all__ = ["load_policy", "run"]
