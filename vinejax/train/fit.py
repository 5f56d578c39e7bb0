"""Mesh, micro-batch, recomputation and engine sizes, from a model's size and a device's memory.

A pure function of numbers: `fit` fills in what a configuration leaves to be chosen, and says why in
one line each. A run and a plan call the same one. Bytes here are estimates, rounded up; what a
program really takes is what `experiments.plan` reads from the compiled ones.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax

from vinejax import policy, sampler
from vinejax.config import Config, ConfigError, EngineConfig
from vinejax.sampler.records import bucket
from vinejax.train import sizes

WEIGHTS = (
    0.6  # of a device that weights, copies and optimizer may take, as far as they can be split
)
TRAINED = 0.5  # and with gradients, so that activations have the rest
USED = 0.9  # of a device that is planned for; the rest is fragmentation and what is not counted
SLOTS = (256, 128, 64, 32, 16, 8)
STATES = 16  # jobs a trunk of the value phase has at least, as in `train.vines`
ROWS = 4  # of a device that keep its products large, so that more are not worth recomputing for
SFT_MICROBATCH = 8  # where memory is not known


@dataclass(frozen=True)
class Machine:
    """The devices of a run, as far as sizes depend on them."""

    count: int
    memory: int | None  # bytes of each that a program may use; None: not known, as on a CPU
    per_process: int  # devices of a process, in which `tensor` lies

    @staticmethod
    def here() -> "Machine":
        """The devices of this run; GPUs and TPUs report their memory."""
        devices, own = jax.devices(), jax.local_devices()
        memory = (own[0].memory_stats() or {}).get("bytes_limit")
        if jax.default_backend() == "cpu":
            memory = None
        return Machine(len(devices), memory, jax.local_device_count())


@dataclass(frozen=True)
class Fit:
    """A configuration without fields that are to be chosen, and the reasons by field."""

    config: Config
    reasons: dict[str, str]


def fit(config: Config, model: policy.LlamaConfig, machine: Machine) -> Fit:
    """Every field that is 0 or auto, chosen. Fields that are set stay as they are.

    Where memory is not known: no shards, the whole minibatch at once, blocks recomputed, and the
    engine's own sizes. Raises ConfigError for a `mesh.tensor` that does not divide the key/value
    heads.
    """
    _check_tensor(config, model)
    chosen = _Chosen(config, model, machine)
    chosen.mesh()
    chosen.activations()
    if machine.memory is not None:
        chosen.engine(machine.memory)
    return Fit(chosen.config, chosen.reasons)


def model_of(config: Config, model: policy.LlamaConfig) -> policy.LlamaConfig:
    """The model as a configuration with nothing left to be chosen runs it.

    Raises ConfigError for cuDNN's decode attention where devices share the heads.
    """
    model = replace(model, remat=config.policy.remat)
    if config.mesh.tensor == 1 or model.decode_attention == "xla":
        return model
    if config.engine.attention == "cudnn":
        raise ConfigError(
            f"engine.attention is 'cudnn', but mesh.tensor is {config.mesh.tensor}: the kernel "
            "cannot share heads among devices, set engine.attention=xla or mesh.tensor=1"
        )
    return replace(model, decode_attention="xla")


class _Chosen:
    """A configuration as it is filled in, and why."""

    def __init__(self, config: Config, model: policy.LlamaConfig, machine: Machine) -> None:
        self.config, self._model, self._machine = config, model, machine
        self.reasons: dict[str, str] = {}

    def _set(self, section: str, reason: str, **values: Any) -> None:
        record = replace(getattr(self.config, section), **values)
        self.config = replace(self.config, **{section: record})
        for name, value in values.items():
            self.reasons[f"{section}.{name}"] = f"{value}: {reason}"

    def mesh(self) -> None:
        """`mesh.tensor` and `mesh.fsdp`, each the smallest that leaves enough of a device."""
        memory, count = self._machine.memory, self._machine.count
        unknown = "the devices do not report their memory"
        if not self.config.mesh.tensor:
            most = math.gcd(self._model.kv_heads, math.gcd(self._machine.per_process, count))
            if memory is None:
                self._set("mesh", unknown, tensor=1)
            else:
                state = sizes.state_bytes(self.config, self._model)
                copies = sizes.copy_bytes(self._model)
                t = _first(
                    _divisors(most), lambda t: copies / t + state / count <= WEIGHTS * memory
                )
                why = (
                    f"weights for sampling and reference, {_gb(copies)}, "
                    f"take {_gb(copies / t)} of the {_gb(memory)} of a device"
                )
                self._set("mesh", why, tensor=t)
        if not self.config.mesh.fsdp:
            rest = max(1, count // self.config.mesh.tensor)
            if memory is None:
                self._set("mesh", unknown, fsdp=1)
            elif self.config.mesh.data > 0:
                given = f"mesh.data is {self.config.mesh.data}"
                self._set("mesh", given, fsdp=max(1, rest // self.config.mesh.data))
            else:
                f = _first(_divisors(rest), lambda f: self._trained(f) <= TRAINED * memory)
                why = (
                    f"weights, optimizer and gradients take {_gb(self._trained(f))} of the "
                    f"{_gb(memory)} of a device"
                )
                self._set("mesh", why, fsdp=f)

    def _trained(self, fsdp: int) -> float:
        """Bytes of a device that hold state, copies and gradients."""
        model, tensor = self._model, self.config.mesh.tensor
        state = sizes.state_bytes(self.config, model) + 8 * sizes.parameters(model)
        return state / (fsdp * tensor) + sizes.copy_bytes(model) / tensor

    @property
    def _sequences(self) -> int:
        """Of a row of a micro-batch, as the method counts them: dpo_positive's are pairs."""
        return 2 if self.config.algorithm == "dpo_positive" else 1

    @property
    def _groups(self) -> int:
        """Devices that have rows of their own."""
        return max(1, self._machine.count // self.config.mesh.tensor)

    def activations(self) -> None:
        """`update.microbatch`, `sft.microbatch` and `policy.remat`."""
        update, sft = self.config.update, self.config.sft
        if self._machine.memory is None:
            why = "the devices do not report their memory"
            if self.config.policy.remat == "auto":
                self._set("policy", why, remat="block")
            if not update.microbatch:
                self._set("update", why, microbatch=max(1, update.minibatch // self._sequences))
            if not sft.microbatch:
                sizes = [n for n in _divisors(sft.batch) if n % self._groups == 0]
                few = _first(sizes or [sft.batch], lambda n: n >= SFT_MICROBATCH)
                self._set("sft", why, microbatch=few)
            return
        asked = self.config.policy.remat
        levels: tuple[policy.Remat, ...] = (
            ("none", "dots", "block") if asked == "auto" else (asked,)
        )
        enough = min(ROWS, max(1, update.minibatch // self._groups))
        rows = {level: self._most_rows(level) for level in levels}
        level = _first(levels, lambda level: rows[level] >= enough)
        each = max(1, rows[level])
        if asked == "auto":
            self._set("policy", f"{each} rows of a device are kept in memory", remat=level)
        if not update.microbatch:
            size = each * self._groups
            self._set("update", f"{each} rows on each of {self._groups} devices", microbatch=size)
        if not sft.microbatch:
            sizes = [n for n in _divisors(sft.batch) if n % self._groups == 0]
            fits = [n for n in sizes if n <= each * self._groups]
            size = max(fits, default=min(sizes, default=sft.batch))
            self._set("sft", f"{size // self._groups} rows on each device", microbatch=size)

    def _most_rows(self, remat: policy.Remat) -> int:
        """Rows of a device that a backward pass can hold: a divisor of what a minibatch has."""
        assert self._machine.memory is not None
        model, mesh = self._model, self.config.mesh
        width = bucket(self.config.update.max_sequence)
        room = (
            USED * self._machine.memory - self._trained(mesh.fsdp) - sizes.head_bytes(model, mesh)
        )
        width *= self._sequences
        row = width * (
            sizes.kept_bytes(model, remat, mesh.tensor) + sizes.passing_bytes(model, mesh.tensor)
        )
        given = self.config.update.microbatch
        if given:
            own = max(1, given // self._groups)
            return own if own * row <= room else 0
        whole = max(1, self.config.update.minibatch // self._groups)
        return max((n for n in _divisors(whole) if n * row <= room), default=0)

    def engine(self, memory: int) -> None:
        """`engine.rows`, `slots`, `ring` and `wave`, of one shard of sampling."""
        config, model, tensor = self.config, self._model, self.config.mesh.tensor
        given = config.engine
        cell = sizes.kv_bytes(model) / tensor
        grows = config.algorithm == "vineppo"
        width = bucket(config.update.max_sequence if grows else config.task.max_prompt_tokens)
        trunks = -(-config.prompts // self._groups) * (config.samples if grows else 1)
        resident = sizes.state_bytes(config, model) / (config.mesh.fsdp * tensor)
        resident += sizes.copy_bytes(model) / tensor
        room = USED * memory - resident - sizes.scoring_bytes(model, tensor)

        def live(layout: sampler.Layout) -> float:
            """Bytes of KV in rows and rings; compiled loops hold the rows' trunks a second time."""
            trunks = 2 * layout.trunks_per_row * width
            return layout.rows * (trunks + layout.slots * layout.ring) * cell

        jobs = STATES if grows else config.samples
        layouts = _layouts(given, trunks, jobs, config.sampling.max_new_tokens)
        chosen = _first(layouts, lambda layout: live(layout) <= room / 2)
        why = (
            f"trunks and rings of all slots take {_gb(live(chosen))} of {_gb(max(0, room))} for KV"
        )
        for name in ("rows", "slots", "ring"):
            if not getattr(given, name):
                self._set("engine", why, **{name: getattr(chosen, name)})
        if not given.wave:
            most = int((room - live(chosen)) / (width * cell))
            if grows:
                most = most // config.samples * config.samples
            most = max(config.samples if grows else 1, min(most, trunks))
            why = f"the KV of a trunk takes up to {_gb(width * cell)}"
            self._set("engine", why, wave=most)


def layout_of(given: EngineConfig, made: sampler.Layout) -> sampler.Layout:
    """`made`, but for what the configuration says."""
    return sampler.Layout(
        rows=given.rows or made.rows,
        slots=given.slots or made.slots,
        ring=given.ring or made.ring,
        chunk=given.chunk or made.chunk,
        trunks_per_row=given.trunks or made.trunks_per_row,
    )


def _layouts(
    given: EngineConfig, trunks: int, jobs: int, max_new_tokens: int
) -> Iterator[sampler.Layout]:
    """Layouts to choose from: many slots first, and of as many slots those with many rows first.

    Where trunks are large, few rows with many slots take less than many rows with few.
    """
    for slots in SLOTS:
        made = sampler.Layout.auto(trunks, jobs, max_new_tokens, slots)
        while made.rows >= 1:
            yield layout_of(given, made)
            if made.rows == 1 or made.slots >= STATES:
                break
            made = replace(made, rows=made.rows // 2, slots=made.slots * 2)


def _check_tensor(config: Config, model: policy.LlamaConfig) -> None:
    tensor = config.mesh.tensor
    if tensor and model.kv_heads % tensor:
        raise ConfigError(
            f"mesh.tensor is {tensor}, which does not divide the {model.kv_heads} key/value heads "
            f"of the model: use one of {', '.join(map(str, _divisors(model.kv_heads)))}"
        )


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _first(values: Iterable[Any], fits: Callable[[Any], bool]) -> Any:
    """The first that fits, or else the last."""
    last = None
    for last in values:
        if fits(last):
            break
    return last


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
