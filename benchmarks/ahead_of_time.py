"""The sampler's loop compiled for a device that is not there: what a step moves, over its floor.

    python -m benchmarks.ahead_of_time --topology=h100:1 [--attention=xla] [--json]

RhoMath-1.1B's widths in bfloat16. `floor` is what a step cannot do without: weights, the rows'
trunks and the rings, each read once. `step` is counted from the compiled text
(`vinejax.compiled.count`). `scatters`, `cache_copies` and `conditionals` name what the loop should
have none of; `cache_write_backs` the caches that the compiler of a TPU has updated on the chip and
writes back whole, whose bytes are in `step`. Nothing is run, so `seconds_at_best` is bytes over the
bandwidth that the maker states, and no measurement.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks import machine, workload
from experiments import cli
from vinejax.config import ConfigError


@dataclass(frozen=True)
class Shape:
    """A model and a layout of the engine."""

    model: workload.Shape
    rows: int
    slots: int
    cells: int  # of a place in a row, which has two
    ring: int
    bank: int  # trunks
    jobs: int = 1 << 12


RHO = Shape(workload.Shape(2048, 22, 32, 4, 64, 5632, 32000), 16, 16, 512, 512, 64)
# Two layers are enough to see what a layer does, if a ring (134 MB) does not fit on a TPU chip:
# copies of smaller ones end there, and would look like reads.
SMALL = replace(RHO, model=replace(RHO.model, layers=2), ring=1024, bank=16)


@dataclass(frozen=True)
class Flags:
    """What to compile."""

    topology: str = "h100:1"  # One device: h100:1, a100-80gb:1, v5e:1, v5p:1, ...
    layers: int = 0  # Of the model; 0: all.
    attention: Literal["auto", "xla", "cudnn"] = "auto"  # As engine.attention.
    json: bool = False  # Print the result as one JSON line.


def sampling(
    name: str, shape: Shape, attention: Literal["auto", "xla", "cudnn"] = "auto"
) -> dict[str, Any]:
    """Compiles the loop for one device and says what its text holds."""
    from vinejax import policy, sampler, sharding
    from vinejax.compiled import phases, topology

    wanted = topology.parse(name)
    if wanted.count != 1:
        raise ConfigError(
            f"--topology is {name!r}: the loop runs on one device, write {wanted.device.name}:1"
        )
    m = shape.model
    config = policy.LlamaConfig(
        vocab_size=m.vocab,
        hidden=m.hidden,
        layers=m.layers,
        heads=m.heads,
        kv_heads=m.kv_heads,
        head_dim=m.head_dim,
        ffn=m.ffn,
        compute_dtype="bfloat16",
        decode_attention="xla" if attention == "auto" else attention,
    )
    layout = sampler.Layout(shape.rows, shape.slots, shape.ring)
    settings = sampler.Settings(0.6, 0.9, eos_ids=(2,))
    mesh = sharding.make_mesh(1, devices=topology.describe(wanted)[:1])
    begun = time.perf_counter()
    with policy.targeting(wanted.device.platform):
        if attention == "auto":
            config = replace(config, decode_attention=sampler.decode_attention(config))
        program = phases.sampling(
            config, settings, layout, shape.cells, shape.bank, shape.jobs, mesh
        ).compile()
        floor = phases.sampling_floor(config, layout, shape.cells)
    memory = program.memory_analysis()
    return {
        "topology": str(wanted),
        "layers": m.layers,
        "attention": config.decode_attention,
        "compile_seconds": time.perf_counter() - begun,
        "floor": floor,
        **_read(program.as_text() or "", floor, _smallest(shape)),
        "arguments": memory.argument_size_in_bytes if memory else None,
        "temporaries": memory.temp_size_in_bytes if memory else None,
    }


def _smallest(shape: Shape) -> int:
    """Elements of the smallest cache array of a layer."""
    m = shape.model
    cells = min(2 * shape.rows * shape.cells, shape.rows * shape.slots * shape.ring)
    return m.kv_heads * m.head_dim * cells


def _read(text: str, floor: int, elements: int) -> dict[str, Any]:
    """What the text of the program says of its heaviest loop."""
    from vinejax import compiled
    from vinejax.compiled import hlo, loops

    traffic, module = compiled.count(text), hlo.parse(text)
    loop = traffic.heaviest.name
    step = traffic.step_bytes(loop)
    return {
        "step": step,
        "over_floor": step / floor,
        "scatters": loops.with_opcode(module, loop, "scatter"),
        "conditionals": loops.with_opcode(module, loop, "conditional"),
        "cache_copies": loops.copies(module, loop, "bf16", elements),
        "cache_write_backs": loops.write_backs(module, loop, "bf16", elements),
    }


def measure(flags: Flags) -> dict[str, Any]:
    """The loop of RhoMath's shape, cut to `flags.layers`, for one device."""
    from vinejax.compiled import topology

    shape = RHO
    if flags.layers:
        shape = replace(RHO, model=replace(RHO.model, layers=flags.layers))
    result = sampling(flags.topology, shape, flags.attention)
    bandwidth = topology.parse(flags.topology).device.bandwidth
    return {
        "benchmark": "ahead_of_time",
        "versions": machine.versions(),
        **result,
        "seconds_at_best": result["step"] / bandwidth,
    }


def command(argv: list[str]) -> None:
    """Parse, compile, print."""
    about = (__doc__ or "").partition("\n\n")[0]
    flags = cli.parse_flags(argv, Flags(), "python -m benchmarks.ahead_of_time", about)
    # The host computes nothing here; without this JAX would look for the device.
    os.environ["JAX_PLATFORMS"] = "cpu"
    result = measure(flags)
    if flags.json:
        cli.print_json(result)
    else:
        print(json.dumps(result, indent=1))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `command`."""
    return cli.execute(command, argv)


if __name__ == "__main__":
    sys.exit(main())
