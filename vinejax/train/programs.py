"""The programs of an iteration on named devices, each with what a device holds beside it.

`train.plan` compiles them. Memory is planned for the longest sequences, work for mean ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from vinejax import policy, sampler, sharding, update
from vinejax.compiled import flops, phases
from vinejax.compiled.facts import Facts, compiled
from vinejax.compiled.topology import Topology, abstract
from vinejax.config import Config
from vinejax.sampler.bank import TOKENS, rows_at_once
from vinejax.sampler.records import bucket, power_of_two
from vinejax.sampler.schedule import TABLE
from vinejax.train import fit, learning, sizes
from vinejax.train.algorithms import ppo

PACKED = 0.8  # of the places in packed rows, and of the slots' steps, that hold a token


@dataclass(frozen=True)
class Lengths:
    """Mean lengths that seconds are estimated from; memory is planned for the longest."""

    prompt: int = 200  # tokens
    response: int = 350  # tokens
    states: int = 12  # of a response


@dataclass(frozen=True)
class Phase:
    """One phase of an iteration, on each device."""

    name: str
    devices: int  # that a program of it runs on
    memory: dict[str, int]  # bytes by what they are for
    facts: Facts | None  # None: not compiled, since what it stands beside does not fit
    tokens: int  # of an iteration, all devices together
    flops: float  # of an iteration, on one device
    moved: float  # bytes, likewise
    sent: float  # bytes to other devices, likewise

    @property
    def total(self) -> int:
        """Bytes that the phase needs."""
        return sum(self.memory.values())

    def seconds(self, topology: Topology) -> dict[str, float]:
        """Of an iteration, at the peaks that the maker states."""
        device = topology.device
        return {
            "flops": self.flops / device.flops,
            "memory": self.moved / device.bandwidth,
            "link": self.sent / device.link,
        }

    def roofline(self, topology: Topology) -> float:
        """Seconds of an iteration if the slowest of the three were all there is."""
        return max(self.seconds(topology).values())


@dataclass(frozen=True)
class Build:
    """A phase before its program is compiled."""

    name: str
    topology: Topology
    devices: int
    lower: Callable[[], jax.stages.Lowered]
    held: dict[str, int]  # bytes of a device beside the program's arguments
    given: dict[str, int]  # bytes of its arguments that are known by name
    tokens: int
    flops: float
    runs: float  # of the program in an iteration, on one device
    steps: float = 0  # of the loop of unknown length in an iteration

    def made(self, folder: Path | None, effort: float) -> Phase:
        """Compiled, unless what is known already is too much."""
        known = _sum(self.held, self.given)
        done = {"tokens": self.tokens, "flops": self.flops}
        if sum(known.values()) > self.topology.device.memory:
            return Phase(self.name, self.devices, known, None, **done, moved=0, sent=0)
        facts = compiled(self.lower(), self.topology, self.devices, folder, effort)
        if facts.arguments is None:
            memory = _sum(self.held, {"program": facts.temporaries})
        else:
            other = facts.arguments - sum(self.given.values())
            memory = known | {
                "other arguments": max(0, other) + facts.outputs - facts.aliased,
                "temporaries": facts.temporaries,
                "code": facts.code,
            }
        moved, sent = self.runs * facts.bytes, self.runs * _bytes(facts.sent)
        if self.steps:
            moved, sent = self.steps * facts.step, self.steps * _bytes(facts.sent_in_step)
        return Phase(self.name, self.devices, memory, facts, **done, moved=moved, sent=sent)


class Programs:
    """The programs of a configuration without fields that are to be chosen."""

    def __init__(
        self,
        config: Config,
        model: policy.LlamaConfig,
        topology: Topology,
        devices: list[Any],
        shard: list[Any],
        lengths: Lengths,
    ) -> None:
        self._config, self._model, self._lengths = config, model, lengths
        self._topology = topology
        shape = config.mesh
        self.mesh = sharding.make_mesh(shape.data, shape.fsdp, shape.tensor, devices=devices)
        self._one = sharding.make_mesh(1, 1, shape.tensor, devices=shard)
        self._shards = topology.count // shape.tensor
        self._hyper = learning.hyper(config, model)
        self._critic = ppo.hyper(config, model) if config.algorithm == "ppo" else None
        self._width = bucket(config.update.max_sequence)

    def phases(self) -> Iterator[Build]:
        """In the order of an iteration."""
        grows = self._config.algorithm == "vineppo"
        yield self._sampling(grows)
        yield self._scoring("scoring", self._wave if grows else 0)
        yield self._scoring("reference", 0)
        if self._critic is not None:
            yield self._values(self._critic)
        yield self._update()
        if self._critic is not None:
            yield self._critic_update(self._critic)

    @cached_property
    def _resident(self) -> dict[str, int]:
        """Bytes of a device that stay through the iteration, by what they are."""
        state = jax.eval_shape(
            lambda p: update.init(p, self._hyper), phases.parameters(self._model)
        )
        placed = abstract(state, update.shardings(self._hyper, self.mesh))
        weights = phases.weights(self._model)
        axes = sharding.shardings(self._one, policy.decode_axes(self._model))
        copy = phases.size_on_device(abstract(weights, axes))
        size = phases.size_on_device
        found = {
            "parameters": size(placed.params),
            "optimizer": size(placed.opt_state),
            "policy copy": copy,
            "reference": copy,
        }
        if self._critic is None:
            return found
        axes = update.shardings(self._critic, self.mesh, update.critic_axes(self._model))
        placed = abstract(phases.critic_state(self._critic), axes)
        own = {"critic": size(placed.params), "critic optimizer": size(placed.opt_state)}
        return found | own

    def _build(
        self,
        name: str,
        mesh: Mesh,
        lower: Callable[[], jax.stages.Lowered],
        arguments: tuple[str, ...],
        tokens: int,
        flops: float,
        *,
        runs: float,
        steps: float = 0,
        kv: int = 0,
        given: dict[str, int] | None = None,
    ) -> Build:
        held = {k: v for k, v in self._resident.items() if k not in arguments}
        own = {k: self._resident[k] for k in arguments} | (given or {})
        if kv:
            own["KV"] = kv
        per_device = flops / self._topology.count
        return Build(
            name, self._topology, mesh.size, lower, held, own, tokens, per_device, runs, steps
        )

    @property
    def _kv(self) -> float:
        """Bytes of a token's keys and values on a device."""
        return sizes.kv_bytes(self._model) / self._config.mesh.tensor

    @property
    def _wave(self) -> int:
        """Trunks of a wave on a device."""
        config = self._config
        own = -(-config.prompts // self._shards) * config.samples
        return min(own, max(1, config.engine.wave // config.samples) * config.samples)

    def _sampling(self, grows: bool) -> Build:
        """The loop that takes most time: that of the values, where there is one."""
        config, lengths = self._config, self._lengths
        engine = config.engine
        longest = config.update.max_sequence if grows else config.task.max_prompt_tokens
        cells = bucket(longest)
        prompts = -(-config.prompts // self._shards)
        trunks = self._wave if grows else min(engine.wave, power_of_two(prompts))
        layout = fit.layout_of(engine, sampler.Layout(engine.rows, engine.slots, engine.ring))
        slots = layout.rows * layout.slots
        tokens = config.episodes * lengths.response
        if grows:  # a rollout is half a response long, in the mean
            tokens += config.episodes * lengths.states * config.values.k * lengths.response // 2
        steps = tokens / (self._shards * slots * PACKED)
        seen = slots * (lengths.prompt + lengths.response // 2)
        rules = config.sampling
        settings = sampler.Settings(rules.temperature, rules.top_p, rules.top_k, (2,))
        kv = (trunks + layout.rows * layout.trunks_per_row) * cells + slots * layout.ring
        return self._build(
            "sampling",
            self._one,
            lambda: phases.sampling(self._model, settings, layout, cells, trunks, TABLE, self._one),
            ("policy copy",),
            tokens,
            steps * self._shards * flops.decode(self._model, slots, seen),
            runs=1,
            steps=steps,
            kv=round(kv * self._kv),
        )

    def _scoring(self, name: str, trunks: int) -> Build:
        model, width = self._model, self._width
        rows = rows_at_once(model, width, self._config.episodes)
        if trunks:
            rows = min(rows, power_of_two(max(1, TOKENS // width)), power_of_two(trunks))
        weights = "policy copy" if name == "scoring" else "reference"
        tokens = self._tokens
        return self._build(
            name,
            self._one,
            lambda: phases.scoring(model, rows, width, trunks, self._one),
            (weights,),
            tokens,
            flops.forward(model, tokens, self._pairs, self._responses),
            runs=tokens / (rows * width * PACKED) / self._shards,
            kv=round(trunks * width * self._kv),
        )

    def _update(self) -> Build:
        model, rows = self._model, self._config.update.minibatch
        sizes = (self._tokens, self._pairs, self._responses)
        work = flops.update(model, *sizes) + flops.recomputed(model, *sizes)
        epochs = self._config.update.epochs
        return self._build(
            "update",
            self.mesh,
            lambda: phases.policy_update(self._hyper, rows, self._width, self.mesh),
            ("parameters", "optimizer"),
            epochs * self._tokens,
            epochs * work,
            runs=epochs * self._tokens / (rows * self._width * PACKED),
        )

    def _values(self, hyper: update.CriticHyper) -> Build:
        rows, tokens = self._config.update.microbatch, self._tokens
        return self._build(
            "values",
            self.mesh,
            lambda: phases.critic_values(hyper, rows, self._width, self.mesh),
            ("critic",),
            tokens,
            flops.forward(self._model, tokens, self._pairs, 0),
            runs=self._config.episodes / rows,
        )

    def _critic_update(self, hyper: update.CriticHyper) -> Build:
        model, rows = self._model, self._config.update.minibatch
        sizes = (self._tokens, self._pairs, 0)
        work = flops.update(model, *sizes) + flops.recomputed(model, *sizes)
        epochs = ppo.passes(self._config)
        return self._build(
            "critic",
            self.mesh,
            lambda: phases.critic_update(hyper, rows, self._width, self.mesh),
            ("critic", "critic optimizer"),
            epochs * self._tokens,
            epochs * work,
            runs=epochs * self._tokens / (rows * self._width * PACKED),
        )

    @property
    def _tokens(self) -> int:
        """Of all trajectories of an iteration."""
        return self._config.episodes * (self._lengths.prompt + self._lengths.response)

    @property
    def _responses(self) -> int:
        return self._config.episodes * self._lengths.response

    @property
    def _pairs(self) -> int:
        whole = self._lengths.prompt + self._lengths.response
        return self._config.episodes * flops.causal_pairs([whole])


def _sum(*parts: dict[str, int]) -> dict[str, int]:
    out: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            out[name] = out.get(name, 0) + size
    return out


def _bytes(sent: dict[str, dict[str, int]]) -> int:
    return sum(kind["bytes"] for kind in sent.values())
