"""Worker: the sampler of this repository on a list of jobs.

Trunks are prefilled once each, then all jobs are sampled from their KV.
"""

from collections import Counter
from typing import Any

import jax
import numpy as np

from benchmarks import machine, turns, workload
from benchmarks.engines import model, on_jax
from vinejax import rng, sampler
from vinejax.arrays import Finish


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """Weights, trunks and jobs of `spec`; everything compiled by a run of three tokens a job."""
    dtypes = {"compute_dtype": spec.get("dtype", "float32"), "kv_dtype": "float32"}
    config = model.config(workload.Shape(**spec["shape"]), **dtypes)
    work = workload.Work.of(spec["work"])
    weights = model.weights(config, spec["logit_spread"])
    settings = model.settings(config, spec["temperature"], spec["top_p"])
    trunks, jobs = lay_out(work, config.vocab_size)
    layout = _layout(spec, len(trunks.tokens), jobs)
    compiled = on_jax.Compilations()

    def run(jobs: sampler.Jobs = jobs) -> dict[str, Any]:
        compiled.take()
        before = machine.cpu_seconds()
        every = np.arange(len(trunks.tokens))
        bank = sampler.prefill(weights, config, trunks, every, len(every))
        jax.block_until_ready(bank)
        prefilled = machine.cpu_seconds()
        key = rng.key(spec["seed"])
        samples = sampler.sample(
            weights,
            config,
            trunks,
            jobs,
            settings,
            key,
            layout=layout,
            cache=(bank.keys, bank.values),
        )
        done = machine.cpu_seconds()
        return {
            "prefill_tokens": int(trunks.length.sum()),
            "prefill_cpu_seconds": prefilled - before,
            "decode_tokens": samples.counters.tokens_sampled,
            "decode_cpu_seconds": done - prefilled,
            "compiled": compiled.take(),
        } | _facts(samples, jobs)

    run(sampler.Jobs(**{**vars(jobs), "max_new_tokens": np.minimum(jobs.max_new_tokens, 3)}))
    info = {
        "engine": "vinejax",
        "dtype": config.compute_dtype,
        "jobs": len(work.jobs),
        "slots": layout.rows * layout.slots,
        "layout": vars(layout),
    }
    return turns.Prepared(info | machine.describe(), run, on_jax.product())


def lay_out(work: workload.Work, vocab: int, least: int = 0) -> tuple[sampler.Trunks, sampler.Jobs]:
    """Each trajectory up to its longest prefix (`least` tokens if that is more), and the jobs."""
    tokens = work.trajectories(vocab)
    index = np.array([job.trajectory for job in work.jobs])
    prefix = np.array([job.prefix for job in work.jobs])
    used = np.unique(index)
    longest = [max(least, int(prefix[index == n].max())) for n in used]
    trunks = sampler.Trunks.of([tokens[n, :p] for n, p in zip(used, longest, strict=True)])
    # Samples of a node are numbered.
    seen: Counter[tuple[int, int]] = Counter()
    sample = []
    for job in work.jobs:
        sample.append(seen[job.trajectory, job.prefix])
        seen[job.trajectory, job.prefix] += 1
    stop = [job.stop for job in work.jobs]
    return trunks, sampler.Jobs.of(np.searchsorted(used, index), prefix, sample, stop)


def _layout(spec: dict[str, Any], trunks: int, jobs: sampler.Jobs) -> sampler.Layout:
    longest = int(jobs.max_new_tokens.max())
    if spec["rows"]:
        slots = max(1, spec["slots"] // spec["rows"])
        return sampler.Layout(spec["rows"], slots, ring=sampler.bucket(longest))
    return sampler.Layout.auto(trunks, len(jobs) / trunks, longest, slots=spec["slots"])


def _facts(samples: sampler.Samples, jobs: sampler.Jobs) -> dict[str, Any]:
    """Counts, after checking that every job drew exactly the tokens that its list asks for."""
    wrong = (samples.length != jobs.max_new_tokens) | (samples.finish != Finish.LENGTH)
    if wrong.any():
        raise RuntimeError(f"{wrong.sum()} jobs ended elsewhere than their list says")
    drawn = np.arange(samples.tokens.shape[1]) < samples.length[:, None]
    kept = samples.logprob_full[drawn] - samples.logprob[drawn]
    counters = samples.counters
    return {
        "useful_tokens": int(jobs.max_new_tokens.sum()),
        "steps": counters.steps,
        "slot_utilisation": counters.slot_utilisation,
        "entropy": float(-samples.logprob_full[drawn].mean()),
        "kept_mass": float(np.exp(kept).mean()),
    }


if __name__ == "__main__":
    turns.serve(prepare)
