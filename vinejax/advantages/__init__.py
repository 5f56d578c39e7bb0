"""Advantages: from values and rewards to the number that weighs each token's gradient.

All are raw; the update whitens them over the minibatch.
"""

from vinejax.advantages.gae import gae
from vinejax.advantages.group import grpo, rloo
from vinejax.advantages.vine import cap, permute, spread, vine

__all__ = ["cap", "gae", "grpo", "permute", "rloo", "spread", "vine"]
