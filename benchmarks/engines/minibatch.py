"""The minibatch and the settings of the update benchmark, the same for every library."""

from dataclasses import dataclass

import numpy as np

TEMPERATURE = 0.6
LEARNING_RATE = 1e-6
CLIP, KL, KL_CLAMP = 0.2, 1e-4, 10.0
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True)
class Minibatch:
    """Arrays [rows, width]; index t belongs to token t."""

    tokens: np.ndarray
    is_response: np.ndarray  # bool
    advantages: np.ndarray
    old_logp: np.ndarray
    ref_logp: np.ndarray


def make(rows: int, width: int, prompt: int, vocab: int) -> Minibatch:
    """Random tokens after a `prompt` of so many; log-probabilities are those of a flat policy."""
    rng = np.random.default_rng(0)
    flat = -np.log(vocab)
    noise = rng.normal(0, 0.01, (2, rows, width)).astype(np.float32) + np.float32(flat)
    is_response = np.broadcast_to(np.arange(width) >= max(1, prompt), (rows, width))
    return Minibatch(
        tokens=rng.integers(3, vocab, (rows, width)),
        is_response=is_response.copy(),
        advantages=rng.normal(size=(rows, width)).astype(np.float32),
        old_logp=noise[0],
        ref_logp=noise[1],
    )
