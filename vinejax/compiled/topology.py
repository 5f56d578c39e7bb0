"""Devices that programs are compiled for without having them: figures, names, compile-only devices.

`parse("h100:8")` and `parse("v5p:2x2x2")` read a name; `describe` asks the platform's compiler for
devices that a mesh is made of. Programs traced for them belong under
`policy.numerics.targeting(topology.device.platform)`, then
`jax.jit(f, ...).lower(*abstract(tree, sharding)).compile()`.
"""

import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

from vinejax.config import ConfigError, UserError, nearest


@dataclass(frozen=True)
class Device:
    """One GPU or TPU chip as its maker describes it. Rates are per second, peaks not averages."""

    name: str
    platform: str  # "gpu" or "tpu", as `jax.default_backend` names it
    memory: int  # bytes that a program may use
    bandwidth: float  # bytes read or written
    flops: float  # dense bf16 floating-point operations
    link: float  # bytes to other devices, all links together, one direction
    source: str


_GB = 10**9
_GIB = 1 << 30
_A100 = "nvidia.com/en-us/data-center/a100"
_H100 = "nvidia.com/en-us/data-center/h100"
_H200 = "nvidia.com/en-us/data-center/h200"
_CLOUD = "cloud.google.com/tpu/docs/"

# Memory of GPUs and bandwidth: openxla/xla, target_config/specs. Memory of TPUs: what libtpu 0.0.42
# leaves to a program (its message when one does not fit).
DEVICES = {
    device.name: device
    for device in (
        Device("a100-80gb", "gpu", 85_100_068_864, 2_039.04 * _GB, 312e12, 300 * _GB, _A100),
        Device("h100", "gpu", 84_942_979_072, 3_352.32 * _GB, 989e12, 450 * _GB, _H100),
        Device("h200", "gpu", 151_397_597_184, 4_800 * _GB, 989e12, 450 * _GB, _H200),
        Device("v4", "tpu", round(30.75 * _GIB), 1_228 * _GB, 275e12, 150 * _GB, _CLOUD + "v4"),
        Device("v5e", "tpu", round(15.75 * _GIB), 819 * _GB, 197e12, 200 * _GB, _CLOUD + "v5e"),
        Device("v5p", "tpu", round(95.74 * _GIB), 2_765 * _GB, 459e12, 600 * _GB, _CLOUD + "v5p"),
        Device("v6e", "tpu", round(31.25 * _GIB), 1_638 * _GB, 918e12, 400 * _GB, _CLOUD + "v6e"),
    )
}

# What the GPU compiler asks a device for. Source of the fields: openxla/xla, target_config/specs.
_GPU_INFO = """\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {optin}
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {capability} }}
}}
platform_name: "CUDA"
dnn_version_info {{ {dnn} }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{description}"
"""
_GPUS: dict[str, dict[str, str | int | float]] = {
    "a100-80gb": {
        "optin": 166912,
        "shared": 167936,
        "cores": 108,
        "fpus": 64,
        "cache": 41943040,
        "clock": 1.41,
        "capability": 8,
        "dnn": "major: 8 minor: 9 patch: 4",
        "description": "A100-SXM4-80GB",
    },
    "h100": {
        "optin": 232448,
        "shared": 233472,
        "cores": 132,
        "fpus": 128,
        "cache": 52428800,
        "clock": 1.98,
        "capability": 9,
        "dnn": "major: 9 minor: 7 patch: 0",
        "description": "NVIDIA H100 80GB HBM3",
    },
}
_GPUS["h200"] = _GPUS["h100"] | {
    "dnn": "major: 9 minor: 10 patch: 0",
    "description": "NVIDIA H200",
}


@dataclass(frozen=True)
class Topology:
    """Devices of one kind: a number of GPUs (one axis), or the shape of a TPU slice."""

    device: Device
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Devices."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.device.name}:{'x'.join(map(str, self.shape))}"

    def part(self, count: int) -> "Topology":
        """So many neighbouring devices as a topology of their own.

        A TPU's compiler may refuse a program for a part of a slice. Raises ConfigError for a number
        that is no power of two.
        """
        if self.device.platform == "gpu":
            return Topology(self.device, (count,))
        if count & (count - 1):
            raise ConfigError(f"a part of a slice has {count} chips: take a power of two")
        across = 1 << (count.bit_length() - 1) // 2
        return Topology(self.device, (across, count // across, *(1,) * (len(self.shape) - 2)))


def parse(text: str) -> Topology:
    """`h100:8` or `v5p:2x2x2`; a TPU's plain number stands for a row. Raises ConfigError."""
    name, _, shape = text.partition(":")
    if name not in DEVICES:
        raise ConfigError(f"topology is {text!r}: {nearest(name, DEVICES)}")
    device = DEVICES[name]
    example = f"{name}:8" if device.platform == "gpu" else f"{name}:2x2"
    sizes = shape.split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ConfigError(f"topology is {text!r}: give the number of devices, like {example}")
    if len(sizes) > (1 if device.platform == "gpu" else 3):
        raise ConfigError(f"topology is {text!r}, which has too many axes: write it like {example}")
    return Topology(device, tuple(int(size) for size in sizes))


def describe(topology: Topology) -> list[Any]:
    """Compile-only devices, `topology.count` of them.

    Raises UserError, naming the package, when the platform's compiler is not installed.
    """
    _check_installed(topology)
    if topology.device.platform == "tpu":
        return _describe_tpu(topology)
    return _describe_gpu(topology)


def abstract(tree: Any, sharding: Any) -> Any:
    """The arrays or shapes of a tree as arguments of `lower`, laid out by `sharding`.

    `sharding` is one for all of them, or a tree of them.
    """
    leaves, structure = jax.tree.flatten(tree)
    if isinstance(sharding, jax.sharding.Sharding):
        placed: Sequence[Any] = [sharding] * len(leaves)
    else:
        placed = structure.flatten_up_to(sharding)
    made = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
        for x, s in zip(leaves, placed, strict=True)
    ]
    return structure.unflatten(made)


def missing_compiler(platform: str) -> str | None:
    """The pip requirement that brings the compiler of a platform; None if it is there."""
    if platform == "tpu":
        return None if importlib.util.find_spec("libtpu") else "jax[tpu]"
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return None if any(importlib.util.find_spec(name) for name in plugins) else "jax[cuda12]"


def _check_installed(topology: Topology) -> None:
    package = missing_compiler(topology.device.platform)
    if package is not None:
        raise UserError(
            f"topology is {str(topology)!r}, but the compiler for {topology.device.platform} is "
            f"not installed: pip install '{package}=={jax.__version__}'"
        )


def _describe_tpu(topology: Topology) -> list[Any]:
    # libtpu asks the cloud for the machine's description, and lets one process in at a time: it is
    # to be told that here is none, and that compiling disturbs nobody.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    shape = topology.shape + (1,) * (2 - len(topology.shape))
    options: dict[str, Any] = {}
    if any(size % 2 for size in shape[:2]):  # hosts have 2x2 chips otherwise
        options["chips_per_host_bounds"] = (1, 1, 1)
    if topology.device.name == "v4":  # one device a chip
        options["chip_config_name"] = "megacore"
    name = f"{topology.device.name}:{'x'.join(map(str, shape))}"
    return _ask(topology, topology_name=name, platform="tpu", **options)


def _describe_gpu(topology: Topology) -> list[Any]:
    device = topology.device
    text = _GPU_INFO.format(
        bandwidth=round(device.bandwidth), memory=device.memory, **_GPUS[device.name]
    )
    return _ask(
        topology,
        topology_name=device.name,
        platform="cuda",
        target_config=text,
        topology=f"1x1x{topology.count}",
    )


def _ask(wanted: Topology, /, **options: Any) -> list[Any]:
    try:
        devices = topologies.get_topology_desc(**options).devices
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"topology is {str(wanted)!r}, which the compiler refuses ({reason}): "
            "take a shape that the platform has"
        ) from error
    if len(devices) != wanted.count:
        raise UserError(
            f"topology is {str(wanted)!r}: the compiler makes {len(devices)} devices of it, not "
            f"{wanted.count}"
        )
    return list(devices)
