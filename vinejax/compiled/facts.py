"""What a compiled program says of itself, kept in a folder by the hash of what was compiled."""

import hashlib
import importlib.metadata
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from vinejax.compiled import bytes as traffic
from vinejax.compiled import collectives
from vinejax.compiled.topology import Topology

_COMPILERS = {
    "gpu": ("jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12"),
    "tpu": ("jaxlib", "libtpu"),
    "cpu": ("jaxlib",),
}
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of [\d.]+[KMGT] hbm")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_EFFORT = "jax_exec_time_optimization_effort"
FORMAT = 1  # of the files; another one is computed anew


@dataclass(frozen=True)
class Facts:
    """Of one program, on one device."""

    hash: str  # of the lowered text, the compiler, and the devices
    seconds: float  # that compiling took
    cached: bool
    # Bytes. `aliased` is the part of the outputs that lies in arguments. None: the program does not
    # fit, and `temporaries` is what the compiler said it takes in all.
    arguments: int | None
    temporaries: int
    outputs: int
    aliased: int
    code: int
    bytes: int  # moved from and to memory, a loop of unknown length counted once
    step: int  # the part of them in a trip of the loop of unknown length that moves most; 0: none
    sent: dict[str, dict[str, int]]  # to other devices, by kind: count and bytes
    sent_in_step: dict[str, dict[str, int]]


def compiled(
    lowered: jax.stages.Lowered,
    topology: Topology,
    devices: int,
    folder: Path | None,
    effort: float = 0.0,
) -> Facts:
    """The facts of a program for `devices` of a topology, unless `folder` has them from before.

    `effort` is the compiler's, from -1 (quick) to 1. A program that is larger than the device's
    memory is no error.
    """
    named = hash_of(lowered.as_text(), topology, effort)
    found = None if folder is None else read(folder, named)
    if found is not None:
        return found
    begun = time.perf_counter()
    before = jax.config.values[_EFFORT]
    jax.config.update(_EFFORT, effort)
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        facts = _refused(named, time.perf_counter() - begun, str(error))
    else:
        facts = _read(named, time.perf_counter() - begun, program, devices)
    finally:
        jax.config.update(_EFFORT, before)
    if folder is not None:
        write(folder, facts)
    return facts


def hash_of(text: str, topology: Topology, effort: float) -> str:
    """16 hexadecimal digits that name a program for a compiler and devices."""
    parts = [text, str(topology), str(effort), str(FORMAT), jax.__version__]
    for name in _COMPILERS[topology.device.platform]:
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def read(folder: Path, named: str) -> Facts | None:
    """The facts that `folder` has; None if it has none, or none that can be read."""
    try:
        data = json.loads((folder / f"{named}.json").read_text())
        return Facts(**data | {"cached": True})
    except (OSError, ValueError, TypeError):
        return None


def write(folder: Path, facts: Facts) -> None:
    """Keeps facts. Several processes may write the same ones at once."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{facts.hash}.json"
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(asdict(facts)))
    os.replace(aside, path)


def _read(named: str, seconds: float, program: Any, devices: int) -> Facts:
    memory, text = program.memory_analysis(), program.as_text() or ""
    moved = traffic.count(text)
    open_loops = [loop for loop in moved.loops if loop.trips is None and not loop.inside]
    step = max((moved.step_bytes(loop.name) for loop in open_loops), default=0)
    sent = collectives.find(text, devices)
    return Facts(
        hash=named,
        seconds=round(seconds, 2),
        cached=False,
        arguments=memory.argument_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        bytes=moved.total(),
        step=step,
        sent=collectives.summed(sent),
        sent_in_step=collectives.summed([c for c in sent if c.in_loop]),
    )


def _refused(named: str, seconds: float, message: str) -> Facts:
    """Of a program that the compiler finds too large. Raises what it said if it is something else.

    A TPU's compiler counts what a program holds at once, and refuses; a GPU's does not.
    """
    used = _USED.search(message)
    if used is None:
        raise RuntimeError(message)
    size = round(float(used.group(1)) * _UNITS[used.group(2)])
    nothing: Mapping[str, dict[str, int]] = {}
    return Facts(
        named, round(seconds, 2), False, None, size, 0, 0, 0, 0, 0, dict(nothing), dict(nothing)
    )
