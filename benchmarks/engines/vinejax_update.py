"""Worker: this repository's update step on one minibatch."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import machine, turns, workload
from benchmarks.engines import minibatch, model, on_jax
from vinejax import policy, rng, update


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """A state and a minibatch; compiled by one update."""
    config = replace(
        model.config(workload.Shape(**spec["shape"])), remat="block" if spec["remat"] else "none"
    )
    rows, width = spec["rows"], spec["width"]
    hyper = update.Hyper(
        config,
        update.Optimizer(minibatch.LEARNING_RATE, total_steps=1000, decay="constant"),
        microbatch=spec["microbatch"] or rows,
        temperature=minibatch.TEMPERATURE,
    )
    step = update.make_step(hyper).step
    made = minibatch.make(rows, width, spec["prompt"], config.vocab_size)
    batch = update.Batch(
        tokens=jnp.asarray(made.tokens, jnp.int32),
        length=jnp.full(rows, width, jnp.int32),
        is_response=jnp.asarray(made.is_response),
        advantages=jnp.asarray(made.advantages),
        old_logp=jnp.asarray(made.old_logp),
        ref_logp=jnp.asarray(made.ref_logp),
    )
    compiled = on_jax.Compilations()
    held = [update.init(policy.init(config, rng.key(0)), hyper)]

    def run() -> dict[str, Any]:
        compiled.take()
        held[0], metrics = step(held[0], batch)
        loss = float(jax.block_until_ready(metrics.loss))
        return {"tokens": rows * width, "loss": loss, "compiled": compiled.take()}

    run()
    info = {"engine": "vinejax update", "dtype": config.compute_dtype, "remat": config.remat}
    return turns.Prepared(info | machine.describe(), run, on_jax.product())


if __name__ == "__main__":
    turns.serve(prepare)
