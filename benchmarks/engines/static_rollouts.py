"""Worker: a sampler as most JAX code has it, on the decoder of this repository.

Static batches of jobs sorted by prefix; each row's prefix is prefilled on its own, and a batch runs
until its longest row has ended. Draws are those of the sampler; cache layouts are its fast ones.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from benchmarks import machine, turns, workload
from benchmarks.engines import model, on_jax
from vinejax import policy
from vinejax.policy import rope
from vinejax.sampler import Settings, bucket
from vinejax.sampler.draw import draw

MASKED = -1e30


class Batch(NamedTuple):
    """Rows of one batch; those beyond its jobs have stop 0."""

    tokens: np.ndarray  # int32 [B, W]
    prefix: np.ndarray  # int32 [B]
    stop: np.ndarray  # int32 [B]


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """Everything compiled by two steps of every batch."""
    config = model.config(workload.Shape(**spec["shape"]))
    work = workload.Work.of(spec["work"])
    weights = model.weights(config, spec["logit_spread"])
    settings = model.settings(config, spec["temperature"], spec["top_p"])
    key = jax.random.key(spec["seed"])
    room = bucket(max(job.stop for job in work.jobs))
    batches = _batches(work, spec["slots"], config.vocab_size)
    compiled = on_jax.Compilations()

    def run(most: int = room) -> dict[str, Any]:
        compiled.take()
        parts = []
        for batch in batches:
            before = machine.cpu_seconds()
            _, cache = _prefill(weights, config, batch.tokens, batch.prefix)
            jax.block_until_ready(cache)
            prefilled = machine.cpu_seconds()
            last = batch.tokens[np.arange(len(batch.stop)), batch.prefix - 1]
            stop = np.minimum(batch.stop, most)
            steps = int(
                _decode(weights, config, settings, room, cache, last, batch.prefix, stop, key)
            )
            parts.append(_facts(batch._replace(stop=stop), steps, before, prefilled))
        total = {name: sum(part[name] for part in parts) for name in parts[0]}
        return total | {"compiled": compiled.take()}

    run(2)
    info = {
        "engine": "static batches in JAX",
        "dtype": "float32",
        "jobs": len(work.jobs),
        "slots": spec["slots"],
    }
    return turns.Prepared(info | machine.describe(), run, on_jax.product())


def _facts(batch: Batch, steps: int, before: float, prefilled: float) -> dict[str, Any]:
    drawn = int(batch.stop.sum())
    return {
        "useful_tokens": drawn,
        "steps": steps,
        "prefill_tokens": int(batch.prefix[batch.stop > 0].sum()),
        "prefill_cpu_seconds": prefilled - before,
        "decode_tokens": drawn,
        "decode_cpu_seconds": machine.cpu_seconds() - prefilled,
    }


def _batches(work: workload.Work, rows: int, vocab: int) -> list[Batch]:
    trajectories = work.trajectories(vocab)
    jobs = sorted(work.jobs, key=lambda job: job.prefix)
    out = []
    for start in range(0, len(jobs), rows):
        part = jobs[start : start + rows]
        width = bucket(max(job.prefix for job in part))
        tokens, prefix = np.zeros((rows, width), np.int32), np.ones(rows, np.int32)
        stop = np.zeros(rows, np.int32)
        for row, job in enumerate(part):
            tokens[row, : job.prefix] = trajectories[job.trajectory, : job.prefix]
            prefix[row], stop[row] = job.prefix, job.stop
        out.append(Batch(tokens, prefix, stop))
    return out


@partial(jax.jit, static_argnames=("config",))
def _prefill(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    tokens: Int[Array, "B W"],
    prefix: Int[Array, "B"],
) -> tuple[None, policy.Cache | None]:
    # The scores are not returned, so the compiler leaves the head out.
    return None, policy.score(weights, config, tokens, prefix, keep_cache=True)[1]


@partial(jax.jit, static_argnames=("config", "settings", "room"))
def _decode(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    settings: Settings,
    room: int,
    cache: policy.Cache,
    token: Int[Array, "B"],
    prefix: Int[Array, "B"],
    stop: Int[Array, "B"],
    key: jax.Array,
) -> Int[Array, ""]:
    """Decodes until every row has its tokens; the number of steps."""
    width = cache[0][0].shape[-1]
    cache = jax.tree.map(
        lambda a: jnp.pad(a, [(0, room if n == width else 0) for n in a.shape]), cache
    )
    logs = jnp.zeros((room, len(token)), jnp.float32)

    def body(carry: Any) -> Any:
        step, token, cache, tokens, logprob, logprob_full = carry
        logits, cache = _step(weights, config, token, prefix, step, width, cache)
        uniform = jax.random.uniform(jax.random.fold_in(key, step), token.shape)
        drew = draw(logits, uniform, settings, config.num_tokens)
        lines = [(tokens, drew.token), (logprob, drew.logprob), (logprob_full, drew.logprob_full)]
        filed = [lax.dynamic_update_slice(a, x[None], (step, 0)) for a, x in lines]
        return step + 1, drew.token, cache, *filed

    start = (jnp.int32(0), token, cache, logs.astype(jnp.int32), logs, logs)
    return lax.while_loop(lambda carry: jnp.any(carry[0] < stop), body, start)[0]


def _step(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    token: Int[Array, "B"],
    prefix: Int[Array, "B"],
    step: Int[Array, ""],
    width: int,
    cache: policy.Cache,
) -> tuple[Float[Array, "B V"], policy.Cache]:
    """One token for each row. The last token of a prefix is fed first: its KV is written here."""
    keys, values = list(cache[0]), list(cache[1])
    at = jnp.arange(keys[0].shape[-1])
    seen = (at < prefix[:, None] - 1) | ((at >= width) & (at <= width + step))
    cos, sin = rope.angles(config, prefix - 1 + step)
    x = policy.embed_tokens(weights["embed"], config, token)
    for layer, w in enumerate(weights["layers"]):

        def attend(q: jax.Array, k: jax.Array, v: jax.Array, layer: int = layer) -> jax.Array:
            cell = width + step
            keys[layer] = lax.dynamic_update_slice_in_dim(keys[layer], k[..., None], cell, 3)
            values[layer] = lax.dynamic_update_slice_in_dim(values[layer], v[:, :, None], cell, 2)
            batch, heads, size = q.shape
            q = q.reshape(batch, k.shape[1], -1, size) * size**-0.5
            score = jnp.einsum("bgmh,bght->bgmt", q, keys[layer])
            weight = jax.nn.softmax(jnp.where(seen[:, None, None], score, MASKED), axis=-1)
            out = jnp.einsum("bgmt,bgth->bgmh", weight, values[layer])
            return out.reshape(batch, heads, size)

        x = policy.block(w, x, config, cos, sin, attend)
    x = policy.rms_norm(x, weights["final_norm"], config.norm_eps)
    return policy.logits(x, weights["head"]), (keys, values)


if __name__ == "__main__":
    turns.serve(prepare)
