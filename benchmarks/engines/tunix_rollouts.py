"""Worker: the `Sampler` of google-tunix with its Llama3, in static batches sorted by prefix.

It runs in an interpreter of its own, which has google-tunix and need not have what vinejax needs.
Each row's prefix is prefilled on its own. The number of steps of a batch is part of the compiled
program and ends of rows cannot be set, so the end of sequence is forbidden and a batch runs to its
longest row's end, rounded up to a multiple of ROUND; so are the widths of prefixes. What a row
draws past its own end is not useful. The cache has as many cells as a batch needs.

Prefilling and decoding are one call: all its time stands under decoding.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.llama3.model import Llama3, ModelConfig

from benchmarks import machine, turns, workload
from benchmarks.engines import on_jax
from benchmarks.engines.constants import EMBEDDING, EOS, norm_weight

PAD = 0
ROUND = 64  # steps and widths of batches are multiples: fewer programs, up to 63 steps more
ROPE_THETA, NORM_EPS = 10000, 1e-5


class Numbers:
    """A tokenizer whose text is the ids, with spaces between them."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        """Nothing: the samples are read as ids."""
        return ""

    def bos_id(self) -> None:
        """No id is put before a text."""

    def eos_id(self) -> int:
        """The id that is never drawn."""
        return EOS

    def pad_id(self) -> int:
        """The id at the left of short prefixes."""
        return PAD


@dataclass(frozen=True)
class Batch:
    """Prefixes as texts, one a row, and what they ask for; rows beyond the jobs have stop 0."""

    texts: tuple[str, ...]
    stop: np.ndarray  # int [rows]
    prefill: int  # tokens of the jobs' prefixes
    width: int
    steps: int


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """The model of `spec`, warmed up by one run of every kind of batch."""
    work = workload.Work.of(spec["work"])
    shape = workload.Shape(**spec["shape"])
    llama = model(shape, spec["logit_spread"])
    batches = make_batches(work, spec["slots"], shape.vocab)
    # A sampler's cache has one size, and another size is another program anyway.
    kinds = {(batch.width, batch.steps): batch for batch in batches}
    samplers = {kind: _sampler(llama, shape, sum(kind)) for kind in kinds}
    compiled = on_jax.Compilations()

    def generate(batch: Batch) -> dict[str, Any]:
        before = machine.cpu_seconds()
        out = samplers[batch.width, batch.steps](
            batch.texts,
            max_generation_steps=batch.steps,
            max_prompt_length=batch.width,
            temperature=spec["temperature"],
            top_p=spec["top_p"],
            seed=spec["seed"],
            eos_tokens=[EOS],
            forbidden_tokens=(EOS, PAD),
        )
        if any(len(tokens) != batch.steps for tokens in out.tokens):
            raise RuntimeError(f"a row did not draw the {batch.steps} tokens that it was asked for")
        useful = int(batch.stop.sum())
        return {
            "useful_tokens": useful,
            "steps": batch.steps,
            "prefill_tokens": batch.prefill,
            "decode_tokens": useful,
            "decode_cpu_seconds": machine.cpu_seconds() - before,
        }

    def run() -> dict[str, Any]:
        compiled.take()
        parts = [generate(batch) for batch in batches]
        total = {name: sum(part[name] for part in parts) for name in parts[0]}
        return total | {"compiled": compiled.take()}

    for batch in kinds.values():
        generate(batch)
    # From its second call on, jax compares the sampler's states, which compiles this.
    jax.block_until_ready(jnp.int32(0) == jnp.int32(0))
    info = {
        "engine": "Tunix Sampler",
        "dtype": "float32",
        "jobs": len(work.jobs),
        "slots": spec["slots"],
        "steps_rounded_to": ROUND,
    }
    return turns.Prepared(info | machine.describe(), run, on_jax.product())


def make_batches(work: workload.Work, rows: int, vocab: int) -> list[Batch]:
    """All jobs in batches of `rows`, those with short prefixes first."""
    trajectories = work.trajectories(vocab)
    jobs = sorted(work.jobs, key=lambda job: job.prefix)
    out = []
    for start in range(0, len(jobs), rows):
        part = jobs[start : start + rows]
        texts = [" ".join(map(str, trajectories[job.trajectory, : job.prefix])) for job in part]
        stop = np.array([job.stop for job in part] + [0] * (rows - len(part)))
        width, steps = (-(-most // ROUND) * ROUND for most in (part[-1].prefix, stop.max()))
        texts += texts[:1] * (rows - len(part))
        prefill = sum(job.prefix for job in part)
        out.append(Batch(tuple(texts), stop, prefill, width, int(steps)))
    return out


def model(shape: workload.Shape, logit_spread: float) -> Llama3:
    """A Llama3 with random weights and the logits' spread that the other engines have."""
    llama = Llama3(
        ModelConfig(
            num_layers=shape.layers,
            vocab_size=shape.vocab,
            embed_dim=shape.hidden,
            hidden_dim=shape.ffn,
            num_heads=shape.heads,
            head_dim=shape.head_dim,
            num_kv_heads=shape.kv_heads,
            rope_theta=ROPE_THETA,
            norm_eps=NORM_EPS,
            weight_tying=True,
        ),
        rngs=nnx.Rngs(0),
    )
    embedding = jax.random.normal(jax.random.key(0), (shape.vocab, shape.hidden))
    llama.embedder.input_embedding[...] = EMBEDDING * embedding
    llama.final_norm.w[...] *= norm_weight(shape.hidden, logit_spread)
    return llama


def _sampler(llama: Llama3, shape: workload.Shape, cells: int) -> Sampler:
    return Sampler(
        llama, Numbers(), CacheConfig(cells, shape.layers, shape.kv_heads, shape.head_dim)
    )


if __name__ == "__main__":
    turns.serve(prepare)
