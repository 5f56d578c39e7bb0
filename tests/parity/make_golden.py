"""Compute the golden logits with transformers (torch, fp32): python -m tests.parity.make_golden"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.parity import kinds

GOLDEN = Path(__file__).parent / "golden" / "logits.npz"


def reference_logits(folder: Path, tokens: np.ndarray) -> np.ndarray:
    """Logits of transformers' model in fp32, eager attention."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        return model(torch.tensor(tokens, dtype=torch.long)).logits.float().numpy()


def main() -> int:
    tokens = kinds.tokens()
    arrays = {"tokens": tokens}
    with tempfile.TemporaryDirectory() as root:
        for name, raw in kinds.KINDS.items():
            arrays[name] = reference_logits(kinds.write(Path(root) / name, raw), tokens)
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, allow_pickle=False, **arrays)
    print(f"{len(arrays) - 1} models, {GOLDEN.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
