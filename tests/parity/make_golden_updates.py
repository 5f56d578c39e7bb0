"""Compute the golden losses and gradients of training on own responses with torch, fp32:
python -m tests.parity.make_golden_updates

The losses are written down here once more, from their formulas, on transformers' logits.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity import kinds

GOLDEN = Path(__file__).parent / "golden" / "updates.npz"

RAW: dict[str, Any] = kinds.KINDS["two_kv_heads"] | {
    "vocab_size": 29,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
}
TEMPERATURE = 0.6
PROMPT = 3
# Prompt and response of 4 pairs: chosen, rejected.
LENGTH = np.array([[12, 5], [4, 9], [8, 8], [6, 11]], np.int32)
# Log-probability of the response now less that under the reference, nats. Two of the chosen ones
# have become less likely, which is what the penalty is for.
GAIN = np.array([[0.4, -0.3], [-0.02, 0.5], [1.5, 0.1], [-0.5, -1.0]], np.float32)
# beta, penalty, label smoothing.
DPO = {"dpo_math": (0.1, 50.0, 0.0), "dpo_smoothed": (0.3, 5.0, 0.2)}
RESTEM = "restem"


def tokens() -> np.ndarray:
    """[4, 2, 12] ids, the two responses of a pair behind the same prompt."""
    ids = ((kinds.uniform("pairs", (4, 2, 12)) + 0.5) * RAW["vocab_size"]).astype(np.int32)
    ids[:, 1, :PROMPT] = ids[:, 0, :PROMPT]
    return ids


def is_response() -> np.ndarray:
    """[4, 2, 12] bool."""
    at = np.arange(12)
    return (at >= PROMPT) & (at < LENGTH[..., None])


def main() -> int:
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as root:
        folder = kinds.write(Path(root), RAW)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
    ids = torch.tensor(tokens(), dtype=torch.long).reshape(8, 12)
    where = torch.tensor(is_response()).reshape(8, 12)[:, 1:]

    def token_logp() -> Any:
        logp = torch.log_softmax(model(ids).logits[:, :-1] / TEMPERATURE, -1)
        return logp.gather(-1, ids[:, 1:, None])[..., 0] * where

    def dpo(beta: float, penalty: float, smoothing: float) -> Any:
        pi = token_logp().sum(-1).reshape(4, 2)
        ref = reference
        lost = torch.clamp(ref[:, 0] - pi[:, 0], min=0)
        z = beta * ((pi[:, 0] - pi[:, 1]) - (ref[:, 0] - ref[:, 1]) - penalty * lost)
        log_sigmoid = torch.nn.functional.logsigmoid
        return -((1 - smoothing) * log_sigmoid(z) + smoothing * log_sigmoid(-z)).mean()

    with torch.no_grad():
        reference = token_logp().sum(-1).reshape(4, 2) - torch.tensor(GAIN)

    def restem() -> Any:
        return -(token_logp().sum(-1) / where.sum(-1)).mean()

    losses = {name: partial(dpo, *settings) for name, settings in DPO.items()} | {RESTEM: restem}
    arrays = {"ref_logp": reference.numpy()}
    for name, loss_of in losses.items():
        model.zero_grad()
        loss = loss_of()
        loss.backward()
        arrays[name] = loss.detach().numpy()
        for parameter, tensor in model.named_parameters():
            arrays[f"{name}/{parameter}"] = tensor.grad.numpy()
    np.savez_compressed(GOLDEN, allow_pickle=False, **arrays)
    print(f"{len(losses)} losses, {GOLDEN.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
