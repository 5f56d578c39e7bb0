"""Worker: the same update in eager torch, on transformers' Llama: loss, global-norm clip, AdamW."""

from typing import Any

import torch

from benchmarks import machine, turns, workload
from benchmarks.engines import hf_generate, minibatch


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """A model and a minibatch, warmed up by one update."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, width = spec["rows"], spec["width"]
    shape = workload.Shape(**spec["shape"])
    llama = hf_generate.model(shape, logit_spread=hf_generate.EMBEDDING * shape.hidden**0.5)
    llama.train()
    if spec["remat"]:
        llama.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(
        llama.parameters(), lr=minibatch.LEARNING_RATE, betas=(0.9, 0.999), weight_decay=0.0
    )
    made = minibatch.make(rows, width, spec["prompt"], shape.vocab)
    arrays = {name: torch.tensor(array) for name, array in vars(made).items()}
    micro = spec["microbatch"] or rows

    def run() -> dict[str, Any]:
        optimizer.zero_grad(set_to_none=True)
        advantages = whitened(arrays["advantages"], arrays["is_response"])
        total = 0.0
        for start in range(0, rows, micro):
            part = {name: array[start : start + micro] for name, array in arrays.items()}
            part["advantages"] = advantages[start : start + micro]
            loss = loss_sum(llama, part) / int(arrays["is_response"].sum())
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), minibatch.MAX_GRAD_NORM)
        optimizer.step()
        return {"tokens": rows * width, "loss": total}

    run()
    info = {"engine": "torch eager update", "dtype": "float32", "remat": spec["remat"]}
    return turns.Prepared(info | machine.describe(), run, hf_generate.product())


def whitened(advantages: Any, is_response: Any) -> Any:
    """Advantages with mean 0 and variance 1 over the response tokens."""
    chosen = advantages[is_response]
    return (advantages - chosen.mean()) / torch.sqrt(chosen.var() + 1e-8)


def loss_sum(llama: Any, part: dict[str, Any]) -> Any:
    """Sum over response tokens of the clipped surrogate, and of k3 per sequence, as ours has it."""
    tokens, keep = part["tokens"], part["is_response"][:, 1:]
    logits = llama(tokens, use_cache=False).logits[:, :-1] / minibatch.TEMPERATURE
    logp = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]
    ratio = torch.exp(logp - part["old_logp"][:, 1:])
    advantage = part["advantages"][:, 1:]
    clipped = ratio.clamp(1 - minibatch.CLIP, 1 + minibatch.CLIP)
    surrogate = torch.maximum(-advantage * ratio, -advantage * clipped)
    away = part["ref_logp"][:, 1:] - logp
    k3 = (torch.expm1(away) - away).clamp(0, minibatch.KL_CLAMP)
    per_sequence = int(keep[0].sum())  # every row has as many: tokens over sequences
    return ((surrogate + minibatch.KL * per_sequence * k3) * keep).sum()


if __name__ == "__main__":
    turns.serve(prepare)
