"""The phases of an iteration on one device, each measured alone by the wall clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workload
from benchmarks.engines import minibatch, model
from benchmarks.engines.vinejax_rollouts import lay_out
from vinejax import policy, rng, sampler, update
from vinejax.compiled import flops
from vinejax.train import scoring

if TYPE_CHECKING:
    from benchmarks.accelerator import Model

TEMPERATURE, TOP_P, LOGIT_SPREAD = 0.6, 0.9, 4.0
WARM = 3  # tokens a job of the runs that compile
SAMPLES = 8  # responses to a prompt
MASTER_BYTES = 16  # a parameter in training: fp32 weight, gradient and two moments
REPEATS = 5


def best(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of a few runs, after one that compiles."""
    jax.block_until_ready(run())
    seconds = []
    for _ in range(repeats):
        before = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - before)
    return min(seconds)


def device(is_small: bool) -> dict[str, Any]:
    """The first device, its measured copy bandwidth (GB/s) and matrix-product peak (TFLOP/s)."""
    one = jax.devices()[0]
    dtype = "float32" if one.platform == "cpu" else "bfloat16"
    size, length = (512, 1 << 22) if is_small else (8192, 1 << 30)
    x = jnp.ones((size, size), dtype)
    multiply = jax.jit(lambda x: jnp.matmul(x, x, precision=policy.precision_of(x.dtype)))
    flat = jnp.ones(length, dtype)
    copy = jax.jit(lambda a: a + 1)
    seconds = best(lambda: copy(flat))
    return {
        "platform": one.platform,
        "kind": one.device_kind,
        "count": jax.device_count(),
        "dtype": dtype,
        "memory_gb": memory(one, "bytes_limit"),
        "copy_gb_per_second": 2 * flat.nbytes / seconds / 1e9,
        "peak_tflops": 2 * size**3 / best(lambda: multiply(x)) / 1e12,
    }


def memory(one: Any, name: str) -> float | None:
    """GB of one of the device's own statistics; None where it keeps none."""
    statistics = one.memory_stats() or {}
    return statistics[name] / 1e9 if name in statistics else None


@dataclass
class Bench:
    """One model's phases; `scoring` comes before `values`, which needs its KV."""

    model: "Model"
    device: dict[str, Any]
    k: int
    config: policy.LlamaConfig = field(init=False)
    weights: Any = field(init=False, default=None)
    cache: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.config = model.config(
            self.model.shape,
            tied=False,
            compute_dtype=self.device["dtype"],
            max_positions=2 * self.model.width,
        )

    def sampling(self) -> dict[str, Any]:
        """Whole responses to prompts."""
        m = self.model
        self.weights = model.weights(self.config, LOGIT_SPREAD)
        work = workload.ordinary(m.prompts, SAMPLES, m.width, m.mean)
        return self._decode(work, None, 0)

    def scoring(self) -> dict[str, Any]:
        """Log-probabilities of whole trajectories; their KV stays for `values`."""
        m, temperature = self.model, TEMPERATURE
        trunks, _ = lay_out(self._values_work(), self.config.vocab_size, self._whole())
        tokens = list(trunks.tokens)
        width = max(len(row) for row in tokens)

        def run() -> Any:
            self.cache = None
            _, self.cache = scoring.score(
                self.weights, self.config, tokens, temperature, width, True
            )
            return self.cache

        seconds = best(run, repeats=1)
        count = sum(len(row) for row in tokens)
        pairs = flops.causal_pairs([len(row) for row in tokens])
        needed = flops.forward(self.config, count, pairs, count)
        return self._facts(seconds, count) | {
            "mfu": needed / seconds / (1e12 * self.device["peak_tflops"]),
            "trajectories": m.trajectories,
        }

    def values(self) -> dict[str, Any]:
        """K rollouts of every state, from the KV that `scoring` left."""
        if self.cache is None:
            return {"skipped": "scoring left no KV"}
        out = self._decode(self._values_work(), self.cache, self._whole())
        self.cache = None
        return out

    def update(self) -> dict[str, Any]:
        """One minibatch, blocks recomputed in the gradient."""
        self.weights = self.cache = None
        config = replace(self.config, remat="block")
        shapes = policy.shapes(config)
        leaves = jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple))
        parameters = sum(int(np.prod(shape)) for shape in leaves)
        needs, has = MASTER_BYTES * parameters / 1e9, self.device["memory_gb"]
        if has is not None and needs > 0.95 * has:
            return {"skipped": f"weights, gradient and moments take {needs:.0f} GB of {has:.0f}"}
        return self._update(config)

    def _update(self, config: policy.LlamaConfig) -> dict[str, Any]:
        m, width = self.model, self.model.width // 2
        optimizer = update.Optimizer(minibatch.LEARNING_RATE, total_steps=100, decay="constant")
        hyper = update.Hyper(config, optimizer, m.microbatch, temperature=TEMPERATURE)
        step = update.make_step(hyper).step
        made = minibatch.make(m.minibatch, width, width // 4, config.vocab_size)
        arrays = {name: jnp.asarray(array) for name, array in vars(made).items()}
        arrays["tokens"] = arrays["tokens"].astype(jnp.int32)
        batch = update.Batch(length=jnp.full(m.minibatch, width, jnp.int32), **arrays)
        # Made on the device in one program: no second copy of the parameters.
        start = jax.jit(lambda key: update.init(policy.init(config, key), hyper))
        held = [start(rng.key(0))]

        def run() -> Any:
            held[0], metrics = step(held[0], batch)
            return metrics.loss

        seconds = best(run, repeats=3)
        tokens = m.minibatch * width
        pairs = flops.causal_pairs([width] * m.minibatch)
        needed = flops.update(config, tokens, pairs, tokens)
        share = needed / seconds / (1e12 * self.device["peak_tflops"])
        return self._facts(seconds, tokens) | {"mfu": share, "microbatch": m.microbatch}

    def _values_work(self) -> workload.Work:
        m = self.model
        return workload.values(m.trajectories, m.states, self.k, m.width, m.mean)

    def _whole(self) -> int:
        """Tokens of a mean trajectory, prompt included."""
        return min(self.model.width, workload.PROMPT + self.model.mean)

    def _decode(self, work: workload.Work, cache: Any, least: int) -> dict[str, Any]:
        trunks, jobs = lay_out(work, self.config.vocab_size, least)
        settings = model.settings(self.config, TEMPERATURE, TOP_P)
        count = len(trunks.tokens)
        longest = int(jobs.max_new_tokens.max())
        layout = sampler.Layout.auto(count, len(jobs) / count, longest, slots=self.model.slots)

        def run(jobs: sampler.Jobs) -> sampler.Samples:
            weights, config = self.weights, self.config
            key = rng.key(0)
            return sampler.sample(
                weights, config, trunks, jobs, settings, key, layout=layout, cache=cache
            )

        begun = time.perf_counter()
        few = np.minimum(jobs.max_new_tokens, WARM)
        run(sampler.Jobs(**{**vars(jobs), "max_new_tokens": few}))
        compiled = time.perf_counter()
        samples = run(jobs)
        seconds = time.perf_counter() - compiled
        counters = samples.counters
        needed = self._needed_bytes(jobs, layout, counters.steps)
        at_best = needed / (1e9 * self.device["copy_gb_per_second"])
        return self._facts(seconds, counters.tokens_sampled) | {
            "jobs": len(jobs),
            "steps": counters.steps,
            "slot_utilisation": counters.slot_utilisation,
            "rerooted": counters.rerooted,
            "ms_per_step": 1e3 * seconds / counters.steps,
            "needed_gb_per_step": needed / counters.steps / 1e9,
            "bandwidth_share": at_best / seconds,
            "compile_seconds": compiled - begun,
            "layout": vars(layout),
        }

    def _needed_bytes(self, jobs: sampler.Jobs, layout: sampler.Layout, steps: int) -> float:
        """Of all steps: the weights, a trunk a row, and what each vine has drawn so far."""
        weights = {name: x for name, x in self.weights.items() if name != "embed"}
        weight_bytes = sum(x.nbytes for x in jax.tree.leaves(weights))
        c = self.config
        cell = 2 * c.layers * c.kv_heads * c.head_dim * jnp.dtype(c.cache_dtype).itemsize
        drawn = jobs.max_new_tokens.astype(np.int64)
        vines = float((drawn * (drawn + 1) // 2).sum())
        trunk_cells = steps * layout.rows * float(jobs.prefix_length.mean())
        return steps * weight_bytes + cell * (vines + trunk_cells)

    def _facts(self, seconds: float, tokens: int) -> dict[str, Any]:
        peak = memory(jax.devices()[0], "peak_bytes_in_use")
        facts = {"seconds": seconds, "tokens": tokens, "tokens_per_second": tokens / seconds}
        return facts | {"peak_memory_gb": peak}
