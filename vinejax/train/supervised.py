"""Supervised fine-tuning on the task's demonstrations: where reinforcement learning starts from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from vinejax import policy, sharding, update
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, Preempted, UserError
from vinejax.report import Progress
from vinejax.train import batches
from vinejax.train.setup import Setup
from vinejax.train.skipped import Skips
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
    out: Path,
    at: Mapping[int, Callable[[policy.Params], None]] | None = None,
) -> policy.Params:
    """The parameters after SFT of the run in `out`; goes on from the newest checkpoint in `folder`.

    `at` has what to call with the parameters after certain updates, by their number. They are in a
    checkpoint by then; a run that goes on from this very one makes the call again. Raises Preempted
    on a stop request, and RunError after too many skipped updates in a row.
    """
    config, at = setup.config, at or {}
    total = max(epoch_ends(config, len(examples)))
    settings = hyper(config, setup.model, total)
    mesh = None if setup.mesh.size == 1 else setup.mesh
    sharded = update.make_sft_step(settings, mesh)
    state = update.init(params, settings, mesh)
    skips, unread = Skips(config, out, "sft.learning_rate"), []
    with Checkpoints(folder, keep=1) as checkpoints:
        restored = checkpoints.restore_latest(state)
        if restored is not None:
            _, state, _ = restored
        done = int(state.step)
        if done in at:
            at[done](state.params)
        for step in range(done, total):
            rows = sharding.place(_rows(config, examples, step), sharded.batch_sharding)
            state, metrics = sharded.step(state, update.SftBatch(**rows))
            unread.append(metrics)
            done = step + 1
            if done % REPORT_EVERY == 0 or done == total:
                progress.supervised(done, total, float(metrics.loss))
            stopped_by = stop.heard(done)
            if done % SAVE_EVERY == 0 or done == total or done in at or stopped_by:
                steps = range(done - len(unread), done)
                skips.look(jax.device_get(unread), (_rows(config, examples, i) for i in steps))
                unread.clear()
                checkpoints.save(done, state, {"total": total})
            if stopped_by and done < total:
                checkpoints.wait()
                raise Preempted(f"{stopped_by} after SFT step {done}, which is saved")
            if done in at:
                at[done](state.params)
        checkpoints.wait()
    return state.params


def epoch_ends(config: Config, count: int) -> dict[int, float]:
    """Epochs by number of updates, for every whole epoch over `count` examples and the very end."""
    s = config.sft
    total = max(1, round(s.epochs * count / s.batch))
    whole = {round(e * count / s.batch): float(e) for e in range(1, int(s.epochs) + 1)}
    return {step: e for step, e in whole.items() if step < total} | {total: float(s.epochs)}


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


def _rows(config: Config, examples: Sequence[Demonstration], step: int) -> dict[str, np.ndarray]:
    """The batch of update number `step`: a stretch of the endless sequence of shuffled epochs."""
    order = batches.shuffled(len(examples), config.sft.batch, step, (config.seed, STREAM))
    chosen = [examples[i] for i in order]
    return batches.padded([d.tokens for d in chosen], [d.prompt_length for d in chosen])
