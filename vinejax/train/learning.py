"""PPO on an iteration's trajectories: epochs of minibatches, their metrics averaged by tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from vinejax import policy, sharding, update
from vinejax.config import Config
from vinejax.sampler import bucket
from vinejax.train import batches
from vinejax.train.credit import Credit
from vinejax.train.scoring import Scored
from vinejax.train.setup import Setup
from vinejax.train.skipped import Skips
from vinejax.train.trajectories import Trajectories

# Not a mean over tokens: these are the largest of an iteration, and counts.
LARGEST = ("ratio_max",)
LAST = ("learning_rate",)
SUMS = ("guarded", "skipped", "tokens", "sequences")


def optimizer(config: Config, learning_rate: float, total: int) -> update.Optimizer:
    """AdamW for so many updates in all; all else as `update` has it."""
    u = config.update
    return update.Optimizer(
        learning_rate=learning_rate,
        total_steps=total,
        warmup_steps=update.warmup_steps(u.warmup_ratio, total),
        warmup=u.warmup,
        decay=u.decay,
        b1=u.b1,
        b2=u.b2,
        eps=u.eps,
        weight_decay=u.weight_decay,
        max_grad_norm=u.max_grad_norm,
        first_moment=u.first_moment,
    )


def hyper(config: Config, model: policy.LlamaConfig) -> update.Hyper:
    """The static settings of the policy's update."""
    u = config.update
    return update.Hyper(
        model,
        optimizer(config, u.learning_rate, config.updates),
        u.microbatch,
        temperature=config.sampling.temperature,
        clip=u.clip,
        kl=u.kl,
        kl_clamp=u.kl_clamp,
        ratio_guard=u.ratio_guard,
        whiten=config.advantages.whiten,
        length_divisor=(config.sampling.max_new_tokens if u.divisor == "constant" else None),
    )


class Learner:
    """The jitted update and the state it changes; `out` is the run folder."""

    def __init__(self, setup: Setup, params: policy.Params, out: Path) -> None:
        settings = hyper(setup.config, setup.model)
        mesh = None if setup.mesh.size == 1 else setup.mesh
        self._setup = setup
        self._sharded = update.make_step(settings, mesh)
        self.state = update.init(params, settings, mesh)
        self._weights = _to_decode_weights(setup)
        self._skips = Skips(setup.config, out)

    @property
    def steps(self) -> int:
        """Updates done."""
        return int(self.state.step)

    def weights(self) -> policy.DecodeWeights:
        """The sampler's copy of the current policy, in whole on every shard of sampling."""
        return self._weights(self.state.params)

    def learn(
        self, iteration: int, batch: Trajectories, credit: Credit, reference: Scored
    ) -> dict[str, float]:
        """All updates of one iteration; their metrics. RunError after too many skipped ones."""
        results, processed = [], 0
        rows = _rows(batch, credit, reference)
        config, mesh = self._setup.config, self._setup.mesh
        make = partial(minibatches, config, iteration, config.update.epochs, rows, mesh)
        for part in make():
            processed += part["tokens"].size
            placed = sharding.place(part, self._sharded.batch_sharding)
            self.state, metrics = self._sharded.step(self.state, update.Batch(**placed))
            results.append(metrics)
        results = jax.device_get(results)
        self._skips.look(results, make())
        tokens = config.update.epochs * int(rows["length"].sum())
        return combine(results) | {"padding_share_update": 1 - tokens / processed}


def decode_weights(setup: Setup, params: policy.Params) -> policy.DecodeWeights:
    """A copy of `params` for sampling and scoring that shares no buffer with them.

    It lies in whole on every device of the mesh, or on the `tensor` devices of a shard together.
    """
    return _to_decode_weights(setup)(params)


def _to_decode_weights(setup: Setup) -> Callable[[policy.Params], policy.DecodeWeights]:
    make = partial(_decode_weights, setup.model)
    if setup.mesh.size == 1:
        return jax.jit(make)
    placed = sharding.shardings(setup.mesh, policy.decode_axes(setup.model))
    return jax.jit(make, out_shardings=placed)


def _decode_weights(model: policy.LlamaConfig, params: policy.Params) -> policy.DecodeWeights:
    # An input that jit hands through is not copied, and the update donates its own.
    return jax.tree.map(lambda x: x.copy(), policy.unstack(params, model))


def minibatches(
    config: Config,
    iteration: int,
    epochs: int,
    rows: dict[str, np.ndarray],
    mesh: Mesh,
) -> Iterator[dict[str, np.ndarray]]:
    """Shuffled minibatches of all epochs, packed; order follows from seed, iteration, epoch."""
    count = len(rows["length"])
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    for epoch in range(epochs):
        order = np.random.default_rng([config.seed, iteration, epoch]).permutation(count)
        for start in range(0, count, config.update.minibatch):
            chosen = order[start : start + config.update.minibatch]
            part = {name: column[chosen] for name, column in rows.items()}
            width, most = part["tokens"].shape[1], config.update.microbatch
            yield batches.packed(part, batches.place(part["length"], width, most, devices))


def sequences_of(batch: Trajectories) -> dict[str, np.ndarray]:
    """All trajectories as padded arrays; see `batches.padded`."""
    return batches.padded(batch.tokens, [len(p) for p in batch.prompts])


def over_responses(batch: Trajectories, own: Sequence[np.ndarray]) -> np.ndarray:
    """One number a response token, as fp32 rows like those of `sequences_of`; 0 elsewhere."""
    width = bucket(max(len(s) for s in batch.tokens))
    spread = np.zeros((len(own), width), np.float32)
    for row, prompt, numbers in zip(spread, batch.prompts, own, strict=True):
        row[len(prompt) : len(prompt) + len(numbers)] = numbers
    return spread


def _rows(batch: Trajectories, credit: Credit, reference: Scored) -> dict[str, np.ndarray]:
    return sequences_of(batch) | {
        "advantages": over_responses(batch, credit.token_advantages),
        "old_logp": credit.old.logp,
        "ref_logp": reference.logp,
    }


def combine(results: Sequence[Any]) -> dict[str, float]:
    """Records of updates as one.

    Means over the iteration's response tokens, but for maxima, counts and the learning rate; those
    of skipped updates are left out of means and maxima, unless all were skipped.
    """
    columns = {
        f.name: np.array([float(getattr(r, f.name)) for r in results]) for f in fields(results[0])
    }
    made = columns["skipped"] == 0
    made = made if made.any() else ~made
    weight = columns["tokens"][made] / max(columns["tokens"][made].sum(), 1)
    out = {}
    for name, column in columns.items():
        if name in LARGEST:
            out[name] = column[made].max()
        elif name in LAST:
            out[name] = column[-1]
        else:
            out[name] = column.sum() if name in SUMS else (column[made] * weight).sum()
    return {name: float(value) for name, value in out.items()}
