"""Worker: transformers' `generate` on a list of jobs, in static batches sorted by prefix.

Each row's prefix is prefilled on its own, as `generate` has no other way, and a batch runs until
its longest row has ended. A logits processor bans the end of sequence before a job's last token and
forces it there.
"""

from typing import Any

import numpy as np
import torch
import transformers

from benchmarks import machine, turns, workload
from benchmarks.engines.constants import EMBEDDING, EOS, norm_weight

PAD = 0


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """The model of `spec` in its dtype, warmed up by four steps of its first batch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    work = workload.Work.of(spec["work"])
    shape = workload.Shape(**spec["shape"])
    llama = model(shape, spec["logit_spread"]).to(getattr(torch, spec["dtype"])).eval()
    generation = transformers.GenerationConfig(
        do_sample=True,
        temperature=spec["temperature"],
        top_p=spec["top_p"],
        top_k=0,
        max_new_tokens=max(job.stop for job in work.jobs),
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    tokens = work.trajectories(shape.vocab)
    jobs = sorted(work.jobs, key=lambda job: job.prefix)
    batches = [jobs[i : i + spec["slots"]] for i in range(0, len(jobs), spec["slots"])]

    def run() -> dict[str, Any]:
        parts = [_generate(llama, generation, tokens, batch) for batch in batches]
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    _generate(
        llama, generation, tokens, [job._replace(stop=min(job.stop, 4)) for job in batches[0]]
    )
    info = {
        "engine": "transformers generate",
        "dtype": spec["dtype"],
        "jobs": len(work.jobs),
        "slots": spec["slots"],
    }
    return turns.Prepared(info | machine.describe(), run, product())


def model(shape: workload.Shape, logit_spread: float) -> Any:
    """A LlamaForCausalLM with random weights and the logits' spread that the other engines have."""
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=shape.vocab,
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            intermediate_size=shape.ffn,
            tie_word_embeddings=True,
            initializer_range=EMBEDDING,
            bos_token_id=1,
            eos_token_id=EOS,
            pad_token_id=PAD,
        )
    )
    with torch.no_grad():
        llama.model.norm.weight.mul_(norm_weight(shape.hidden, logit_spread))
    return llama


class _EndAt:
    """Lets row r end with its stop[r]-th new token and no other; notes when the first step came."""

    def __init__(self, stop: Any, width: int) -> None:
        self.stop, self.width = stop, width
        self.prefilled: float | None = None

    def __call__(self, ids: Any, scores: Any) -> Any:
        if self.prefilled is None:
            self.prefilled = machine.cpu_seconds()
        scores[:, [PAD, EOS]] = -torch.inf
        ends = self.stop == ids.shape[1] - self.width + 1
        scores[ends] = -torch.inf
        scores[ends, EOS] = 0
        return scores


def _generate(
    llama: Any, generation: Any, tokens: np.ndarray, batch: list[workload.Job]
) -> dict[str, Any]:
    """One batch; prefixes stand at the right of their rows."""
    width = max(job.prefix for job in batch)
    ids, is_token = np.full((len(batch), width), PAD), np.zeros((len(batch), width), int)
    for row, job in enumerate(batch):
        ids[row, width - job.prefix :] = tokens[job.trajectory, : job.prefix]
        is_token[row, width - job.prefix :] = 1
    end = _EndAt(torch.tensor([job.stop for job in batch]), width)
    before = machine.cpu_seconds()
    with torch.inference_mode():
        out = llama.generate(
            torch.tensor(ids),
            attention_mask=torch.tensor(is_token),
            generation_config=generation,
            logits_processor=transformers.LogitsProcessorList([end]),
        )
    done = machine.cpu_seconds()
    drawn, asked = int((out[:, width:] != PAD).sum()), sum(job.stop for job in batch)
    if drawn != asked:
        raise RuntimeError(f"a batch drew {drawn} tokens, where its list says {asked}")
    prefilled = done if end.prefilled is None else end.prefilled
    return {
        "useful_tokens": drawn,
        "steps": out.shape[1] - width,
        "prefill_tokens": int(is_token.sum()),
        "prefill_cpu_seconds": prefilled - before,
        "decode_tokens": drawn,
        "decode_cpu_seconds": done - prefilled,
    }


def product() -> Any:
    """One fp32 matrix product of machine.PEAK_SIZE."""
    x = torch.randn(machine.PEAK_SIZE, machine.PEAK_SIZE)
    return lambda: torch.matmul(x, x)


if __name__ == "__main__":
    turns.serve(prepare)
