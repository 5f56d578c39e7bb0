"""Devices as independent shards of sampling: each has the whole weights and a loop of its own.

Where `tensor` devices share one model, these together are a shard: heads, KV and vocabulary are
split over them, and their loop runs in step.

The data x fsdp devices of all processes are numbered; each takes a contiguous share of whatever is
dealt out (prompts with all their samples, trajectories, problems). A device's work is what one
device alone would do with its share, driven by a thread: programs of one device, so that nothing in
their loops talks to another device, and no device waits for another's longest response. One
program over all devices (`shard_map`) would compile once instead of once a device, but the host
would have to feed all of them in step: groups of equal shapes, one look per chunk, re-rooting when
all are ready. A job's tokens depend on its key and prefix alone, so shares change no token.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from vinejax import policy, processes, sampler, sharding
from vinejax.config import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Shards:
    """All shards of a run, and those of this process."""

    count: int  # of all processes
    first: int  # number of this process's first one; the others follow
    meshes: tuple[Mesh, ...]  # of this process, each with its `tensor` devices

    @staticmethod
    def of(mesh: Mesh) -> "Shards":
        """Those of a mesh. A shard's `tensor` devices belong to one process.

        Raises ConfigError where they do not, and where processes have different numbers of devices.
        """
        groups = mesh.devices.reshape(-1, mesh.shape["tensor"])
        owners = [{device.process_index for device in group} for group in groups]
        if any(len(owner) > 1 for owner in owners):
            raise ConfigError(
                f"mesh.tensor is {mesh.shape['tensor']}, which spans processes: sampling needs the "
                "tensor devices in one process, choose a divisor of a process's devices"
            )
        numbers = [owner.pop() for owner in owners]
        order = sorted(range(len(groups)), key=lambda i: numbers[i])
        own = [i for i, at in enumerate(order) if numbers[at] == processes.index()]
        if len(own) * processes.count() != len(groups):
            raise ConfigError(
                f"the mesh has {len(own)} of its {len(groups)} data x fsdp devices in process "
                f"{processes.index()}: give each process the same number"
            )
        chosen = (list(groups[order[i]]) for i in own)
        meshes = (sharding.make_mesh(1, 1, len(group), devices=group) for group in chosen)
        return Shards(len(groups), own[0], tuple(meshes))

    def share(self, number: int, items: int) -> range:
        """The items of shard `number`; sizes differ by one at most."""
        return range(items * number // self.count, items * (number + 1) // self.count)

    def most(self, items: int) -> int:
        """How many items a shard has at most."""
        return -(-items // self.count)

    def here(self, items: int) -> range:
        """The items of all shards of this process."""
        last = self.first + len(self.meshes) - 1
        return range(self.share(self.first, items).start, self.share(last, items).stop)

    def run(
        self,
        work: Callable[[policy.DecodeWeights, range, bool], T],
        weights: policy.DecodeWeights,
        items: int,
    ) -> list[T]:
        """`work(weights, share, leads)` of each shard of this process that has items, in order.

        All at the same time; the first in the calling thread, which `leads` says. `weights` lie on
        every shard of the mesh in whole.
        """
        if self.count == 1 and self.meshes[0].size == 1:
            return [work(weights, range(items), True)] if items else []
        shares = [self.share(self.first + i, items) for i in range(len(self.meshes))]
        todo = [(m, part) for m, part in zip(self.meshes, shares, strict=True) if len(part)]

        def on(mesh: Mesh, part: range, leads: bool) -> T:
            device = mesh.devices.flat[0]
            if mesh.size == 1:
                with jax.default_device(device):
                    return work(_on_device(weights, device), part, leads)
            with jax.set_mesh(mesh):
                return work(_on_mesh(weights, mesh), part, leads)

        if not todo:
            return []
        with ThreadPoolExecutor(len(todo)) as pool:
            others = [pool.submit(on, *task, False) for task in todo[1:]]
            return [on(*todo[0], True), *(other.result() for other in others)]

    def sample(
        self,
        weights: policy.DecodeWeights,
        model: policy.LlamaConfig,
        trunks: sampler.Trunks,
        jobs: sampler.Jobs,
        settings: sampler.Settings,
        key: jax.Array,
        *,
        layout: sampler.Layout,
        wave: int,
    ) -> sampler.Samples:
        """`sampler.sample` by all shards of all processes; the jobs are ordered by trunk."""

        def work(weights: policy.DecodeWeights, part: range, leads: bool) -> sampler.Samples:
            first, last = np.searchsorted(jobs.trunk, [part.start, part.stop])
            own = jobs.take(np.arange(first, last))
            chosen = sampler.Trunks(
                trunks.tokens[part.start : part.stop], trunks.prompt_length[part.start : part.stop]
            )
            own = replace(own, trunk=own.trunk - np.int32(part.start))
            return sampler.sample(
                weights, model, chosen, own, settings, key, layout=layout, wave=wave
            )

        parts = self.run(work, weights, len(trunks.tokens))
        if self.count == 1 and parts:
            return parts[0]
        width = max(1, int(jobs.max_new_tokens.max(initial=1)))
        return _of_columns(processes.join(_columns(parts, width)))


def _on_device(weights: policy.DecodeWeights, device: Any) -> policy.DecodeWeights:
    """The device's own copy of weights that lie on all of them; nothing is moved."""

    def local(x: jax.Array) -> jax.Array:
        return next(s.data for s in x.addressable_shards if s.device == device)

    return jax.tree.map(local, weights)


def _on_mesh(weights: policy.DecodeWeights, mesh: Mesh) -> policy.DecodeWeights:
    """A shard's own copy, split over its devices; nothing is moved."""

    def local(x: jax.Array) -> jax.Array:
        own = {s.device: s.data for s in x.addressable_shards}
        parts = [own[device] for device in mesh.devices.flat]
        assert isinstance(x.sharding, NamedSharding)
        placed = NamedSharding(mesh, x.sharding.spec)
        return jax.make_array_from_single_device_arrays(x.shape, placed, parts)

    return jax.tree.map(local, weights)


PER_TOKEN, PER_JOB = ("tokens", "logprob", "logprob_full"), ("length", "finish")
COUNTERS = tuple(sampler.Counters.__dataclass_fields__)


def _columns(parts: list[sampler.Samples], width: int) -> dict[str, np.ndarray]:
    """The samples of some shards as arrays, continuations padded to `width`."""
    kinds = {"tokens": np.int32, "logprob": np.float32, "logprob_full": np.float32}
    columns = {name: [np.zeros((0, width), kind)] for name, kind in kinds.items()}
    columns |= {name: [np.zeros(0, np.int32)] for name in PER_JOB}
    for part in parts:
        for name in PER_TOKEN:
            own = getattr(part, name)
            columns[name].append(np.pad(own, ((0, 0), (0, width - own.shape[1]))))
        for name in PER_JOB:
            columns[name].append(getattr(part, name))
    joined = {name: np.concatenate(column) for name, column in columns.items()}
    return joined | {"counters": counted(sum_of([part.counters for part in parts]))}


def _of_columns(columns: dict[str, np.ndarray]) -> sampler.Samples:
    own = {name: columns[name] for name in (*PER_TOKEN, *PER_JOB)}
    return sampler.Samples(**own, counters=counters_of(columns["counters"]))


def sum_of(parts: Sequence[sampler.Counters]) -> sampler.Counters:
    """All together, in a record of its own."""
    total = sampler.Counters()
    for part in parts:
        total += part
    return total


def counted(counters: sampler.Counters) -> np.ndarray:
    """Counters as a row, int64 [1, N]."""
    return np.array([[getattr(counters, name) for name in COUNTERS]], np.int64)


def counters_of(rows: np.ndarray) -> sampler.Counters:
    """The sum of rows of `counted`."""
    return sampler.Counters(*(int(total) for total in rows.sum(axis=0)))
