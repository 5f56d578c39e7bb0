"""What devices send to each other in a compiled program, from its text.

A loop's trips count where the text says how many there are, and once where it does not. Bytes are
what one device sends when its group passes the data on in a ring: (n - 1) / n of the whole array
for an all-gather, a reduce-scatter or an all-to-all of n devices, twice that for an all-reduce.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from vinejax.compiled import hlo
from vinejax.compiled.hlo import Computation, Instruction, Module

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")

_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_COUNTED = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=")
# Axes of a mesh, and those of them that a group goes along, maybe a part ('axis':(before)size).
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']+)'=(\d+)")
_ALONG = re.compile(r"'([^']+)'(?::\(\d+\)(\d+))?")
_CALLING = frozenset({"call", "conditional", "async-start", "fusion"})


@dataclass(frozen=True)
class Collective:
    """One instruction, on one device."""

    kind: str  # one of KINDS
    whole: int  # bytes of the array that the group has, or makes, together
    devices: int  # of a group
    times: int  # that it runs, as far as the text says
    in_loop: bool  # one whose trips the text does not say
    source: str  # the operation of the program that it comes from

    @property
    def bytes(self) -> int:
        """What a device sends, all times together."""
        passes = {"all-reduce": 2, "collective-permute": 1}.get(self.kind, 1)
        share = 1.0 if self.kind == "collective-permute" else (self.devices - 1) / self.devices
        return round(self.times * passes * share * self.whole)


def find(text: str, partitions: int) -> list[Collective]:
    """The collectives of a program that `partitions` devices run, in the order of its text.

    Those of one device with itself, which compilers leave behind, are passed over.
    """
    module = hlo.parse(text)
    entry = module.computations[module.entry]
    return [c for c in _walk(module, entry, partitions, 1, False) if c.devices > 1]


def summed(found: list[Collective]) -> dict[str, dict[str, int]]:
    """How often each kind runs, and the bytes that a device sends for it."""
    out: dict[str, dict[str, int]] = {}
    for one in found:
        total = out.setdefault(one.kind, {"count": 0, "bytes": 0})
        total["count"] += one.times
        total["bytes"] += one.bytes
    return out


def _walk(
    module: Module, computation: Computation, partitions: int, times: int, in_loop: bool
) -> Iterator[Collective]:
    scattered = _scatters(computation)
    for i in computation.instructions:
        kind = i.opcode.removesuffix("-start")
        if kind in KINDS:
            kind = "reduce-scatter" if i.name in scattered else kind
            size = _group(i, partitions)
            yield Collective(kind, _whole(i, kind, size), size, times, in_loop, i.source)
        elif i.opcode == "while":
            trips = module.trips(i)
            for name in i.callees:
                inner, count = module.computations[name], times * (1 if trips is None else trips)
                yield from _walk(module, inner, partitions, count, in_loop or trips is None)
        elif i.opcode in _CALLING:
            for name in i.callees:
                yield from _walk(module, module.computations[name], partitions, times, in_loop)


def _scatters(computation: Computation) -> frozenset[str]:
    """All-reduces of which a device keeps its own part alone: how a TPU's compiler writes
    reduce-scatters, as fusions that end in a slice."""
    if "all-reduce-scatter" not in computation.name:
        return frozenset()
    return frozenset(i.name for i in computation.instructions if i.opcode == "all-reduce")


def _group(i: Instruction, partitions: int) -> int:
    """Devices that exchange data with each other."""
    if i.opcode.startswith("collective-permute"):
        return 2
    named = _NAMED.search(i.attributes)
    if named:
        sizes = dict(_AXIS.findall(named.group(1)))
        along = _ALONG.findall(named.group(2))
        return math.prod(int(part or sizes[axis]) for axis, part in along)
    counted = _COUNTED.search(i.attributes)
    if counted:
        return int(counted.group(2))
    listed = _LISTED.search(i.attributes)
    return len(listed.group(1).split(",")) if listed else partitions


def _whole(i: Instruction, kind: str, size: int) -> int:
    """Bytes of the whole array; a start's result names the operands, too."""
    leaves = i.leaves
    if i.opcode.endswith("-start") and i.opcode != "all-reduce-start" and len(leaves) > 1:
        half = len(i.operands)
        leaves = leaves[half : 2 * half]
    total = sum(leaf.stored_bytes for leaf in leaves)
    is_part = kind == "reduce-scatter" and not i.opcode.startswith("all-reduce")
    return total * size if is_part else total
