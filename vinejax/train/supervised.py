"""Supervised fine-tuning on the task's demonstrations: where reinforcement learning starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Sharding

from vinejax import policy, update
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, Preempted, UserError
from vinejax.report import Progress
from vinejax.sampler import Trunks, bucket
from vinejax.train.setup import Setup
from vinejax.train.stopping import StopRequest

SAVE_EVERY = 50  # updates between checkpoints (the authors')
REPORT_EVERY = 50
STREAM = 0x5F7  # keeps the order of demonstrations apart from the other uses of the seed


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the response to imitate, end-of-sequence token included."""

    tokens: np.ndarray  # int32
    prompt_length: int


def demonstrations(setup: Setup) -> list[Demonstration]:
    """The task's demonstrations in tokens; those longer than `sft.max_length` are left out."""
    tokenizer, task = setup.tokenizer, setup.task
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    found = []
    for problem in task.load(task.sft_split):
        prompt, response = tokenizer.encode_pair(task.prompt(problem), task.target(problem))
        tokens = np.array([*bos, *prompt, *response, tokenizer.eos_id], np.int32)
        found.append(Demonstration(tokens, len(bos) + len(prompt)))
    kept = [d for d in found if len(d.tokens) <= setup.config.sft.max_length]
    if len(kept) < setup.config.sft.batch:
        raise UserError(
            f"sft.batch is {setup.config.sft.batch}, but only {len(kept)} of {len(found)} "
            f"demonstrations have at most sft.max_length = {setup.config.sft.max_length} tokens: "
            "lower the first or raise the second"
        )
    return kept


def fine_tune(
    setup: Setup,
    params: policy.Params,
    examples: Sequence[Demonstration],
    folder: Path,
    progress: Progress,
    stop: StopRequest,
) -> policy.Params:
    """The parameters after SFT; goes on from the newest checkpoint in `folder`."""
    config = setup.config
    total = max(1, round(config.sft.epochs * len(examples) / config.sft.batch))
    settings = hyper(config, setup.model, total)
    mesh = None if setup.mesh.size == 1 else setup.mesh
    sharded = update.make_sft_step(settings, mesh)
    state = update.init(params, settings, mesh)
    with Checkpoints(folder, keep=1) as checkpoints:
        restored = checkpoints.restore_latest(state)
        if restored is not None:
            _, state, _ = restored
        done = int(state.step)
        for step in range(done, total):
            batch = _batch(config, examples, step, sharded.batch_sharding)
            state, metrics = sharded.step(state, batch)
            done = step + 1
            if done % REPORT_EVERY == 0 or done == total:
                progress.supervised(done, total, float(metrics.loss))
            if done % SAVE_EVERY == 0 or done == total or stop.name:
                checkpoints.save(done, state, {"total": total})
            if stop.name and done < total:
                checkpoints.wait()
                raise Preempted(f"{stop.name} after SFT step {done}, which is saved")
        checkpoints.wait()
    return state.params


def hyper(config: Config, model: policy.LlamaConfig, total: int) -> update.SftHyper:
    """The static settings of the supervised update."""
    s = config.sft
    optimizer = update.Optimizer(
        learning_rate=s.learning_rate,
        total_steps=total,
        warmup_steps=update.warmup_steps(s.warmup_ratio, total),
        warmup="linear",
        decay=s.decay,
        b1=s.b1,
        b2=s.b2,
        eps=s.eps,
        weight_decay=s.weight_decay,
        max_grad_norm=s.max_grad_norm,
    )
    return update.SftHyper(model, optimizer, s.microbatch)


def _batch(
    config: Config, examples: Sequence[Demonstration], step: int, placement: Sharding | None
) -> update.SftBatch:
    """The batch of update number `step`: a stretch of the endless sequence of shuffled epochs."""
    size, count = config.sft.batch, len(examples)
    at = np.arange(step * size, (step + 1) * size)
    orders = {
        e: np.random.default_rng([config.seed, STREAM, int(e)]).permutation(count)
        for e in set(at // count)
    }
    chosen = [examples[orders[i // count][i % count]] for i in at]
    length = np.array([len(d.tokens) for d in chosen], np.int32)
    first = np.array([d.prompt_length for d in chosen], np.int32)
    width = bucket(int(length.max()))
    place = np.arange(width)
    rows = {
        "tokens": Trunks.of([d.tokens for d in chosen]).padded(size, width),
        "length": length,
        "is_response": (place >= first[:, None]) & (place < length[:, None]),
    }
    return update.SftBatch(**jax.device_put(rows, placement))
