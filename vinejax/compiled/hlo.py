"""A reader of optimized HLO text (`compiled.as_text()`): computations of instructions, with types.

It reads what XLA prints for CPU, GPU and TPU; attributes other than the ones named here are passed
over. Source of the grammar: openxla/xla, `hlo_parser.cc`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_LEAF = re.compile(r"([a-z]\w*)\[([\d,<=\s]*)\](?:\{([^}]*)\})?")
_COMMENT = re.compile(r"/\*.*?\*/")
_CALLEES = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"|(?:branch_computations|called_computations)=\{([^}]*)\}"
)
_ROLE = re.compile(r"(body|condition)=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SOURCE = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_BEGIN = re.compile(r"\s+(?:ROOT )?%?[\w.\-]+ = ")
_END = re.compile(r"\}(?:, execution_thread=.*)?\s*$")
_OPENING, _CLOSING = "({[", ")}]"


@dataclass(frozen=True)
class Leaf:
    """One array of a type."""

    dtype: str
    dims: tuple[int, ...]
    layout: str  # as printed between braces, "" if left out

    @property
    def elements(self) -> int:
        """Elements, padding left out."""
        return math.prod(self.dims)

    @cached_property
    def bytes(self) -> int:
        """Bytes in the device's main memory, the padding of a tiled layout included.

        0 for what the layout puts elsewhere (a memory space S(n): on the chip, or on the host).
        """
        space = re.search(r"S\((\d+)\)", self.layout)
        return 0 if space and int(space.group(1)) else self.stored_bytes

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes wherever it is, the padding of a tiled layout included."""
        return (math.prod(self._stored()) * _bits(self.dtype) + 7) // 8

    def _stored(self) -> list[int]:
        """Dimensions, those of the first tile rounded up to it."""
        dims = list(self.dims)
        order, _, tiles = self.layout.partition(":")
        tile = re.search(r"T\(([\d,]+)\)", tiles)
        if not tile or not order:
            return dims
        minor = [int(d) for d in order.split(",")]
        sizes = [int(n) for n in reversed(tile.group(1).split(","))]
        for d, n in zip(minor, sizes, strict=False):
            dims[d] = -(-dims[d] // n) * n
        return dims


def _bits(dtype: str) -> int:
    """Bits of an element; 0 for tokens and opaque values."""
    if dtype == "pred":
        return 8
    digits = re.search(r"\d+", dtype)
    return int(digits.group()) if digits else 0


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    leaves: tuple[Leaf, ...]  # the arrays of its result
    operands: tuple[str, ...]  # names of instructions; of a parameter or a constant, its number
    attributes: str
    is_root: bool

    @property
    def bytes(self) -> int:
        """Size of the result."""
        return sum(leaf.bytes for leaf in self.leaves)

    @property
    def elements(self) -> int:
        """Elements of the result."""
        return sum(leaf.elements for leaf in self.leaves)

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """Names of the computations that it names, in order."""
        found: list[str] = []
        for one, many in _CALLEES.findall(self.attributes):
            found += [one] if one else [name.strip().lstrip("%") for name in many.split(",")]
        return tuple(name for name in found if name)

    def role(self, name: str) -> str:
        """The computation that is the `body` or the `condition` of a while."""
        return dict(_ROLE.findall(self.attributes))[name]

    @property
    def trips(self) -> int | None:
        """How often a while runs, where the compiler wrote it down; see `Module.trips`."""
        found = _TRIPS.search(self.attributes)
        return int(found.group(1)) if found else None

    @property
    def source(self) -> str:
        """The operation of the program that it comes from, "" if it is not said."""
        found = _SOURCE.search(self.attributes)
        return found.group(1) if found else ""

    @property
    def target(self) -> str:
        """What a custom call runs."""
        found = _TARGET.search(self.attributes)
        return found.group(1) if found else ""


@dataclass(frozen=True)
class Computation:
    """Instructions in the order of the text."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Its instructions by name."""
        return {i.name: i for i in self.instructions}

    @cached_property
    def users(self) -> dict[str, list[tuple[Instruction, int]]]:
        """Of each name, the instructions that have it as an operand, and as which one."""
        out: dict[str, list[tuple[Instruction, int]]] = {}
        for user in self.instructions:
            if user.opcode not in ("parameter", "constant"):
                for place, name in enumerate(user.operands):
                    out.setdefault(name, []).append((user, place))
        return out

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the result."""
        return next(i for i in self.instructions if i.is_root)

    def parameter(self, number: int) -> Instruction:
        """Parameter `number`."""
        text = str(number)
        return next(
            i for i in self.instructions if i.opcode == "parameter" and i.operands == (text,)
        )


@dataclass(frozen=True)
class Module:
    """All computations of a program, and the name of the one it starts with."""

    computations: dict[str, Computation]
    entry: str

    def trips(self, loop: Instruction) -> int | None:
        """How often a while runs: as the compiler says, or as its condition does.

        A condition that compares one number of the loop's with a constant is that of a scan, which
        counts from 0.
        """
        if loop.trips is not None:
            return loop.trips
        condition = self.computations[loop.role("condition")]
        last = condition.root
        if last.opcode != "compare" or "direction=LT" not in last.attributes:
            return None
        number, most = (condition.by_name[name] for name in last.operands)
        is_scan = number.opcode == "get-tuple-element" and most.opcode == "constant"
        return int(most.operands[0]) if is_scan and most.operands else None


def parse(text: str) -> Module:
    """The module that `text` prints. Raises ValueError when it has no entry computation."""
    computations: dict[str, Computation] = {}
    entry, name = "", ""
    lines: list[str] = []
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$", line.rstrip())
        if header and " = " not in line.split("(")[0]:
            name, lines = header.group(2), []
            entry = name if header.group(1) else entry
        elif name and _END.match(line):
            computations[name] = Computation(name, tuple(_instruction(text) for text in lines))
            name = ""
        elif name and _BEGIN.match(line):
            lines.append(_COMMENT.sub("", line))
        elif name and lines:  # attributes that hold line breaks, as those of Pallas kernels do
            lines[-1] += line
    if not entry:
        raise ValueError("the text has no ENTRY computation: give compiled.as_text()")
    return Module(computations, entry)


def _instruction(line: str) -> Instruction:
    left, _, rest = line.strip().partition(" = ")
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].lstrip()
    opening = rest.index("(")
    closing = _closing(rest, opening)
    opcode, inside = rest[:opening], rest[opening + 1 : closing]
    operands: tuple[str, ...] = ()
    if opcode == "constant":
        operands = (inside,) if inside.isdecimal() else ()
    else:
        # Older texts print an operand's type before its name.
        operands = tuple(part.split()[-1].lstrip("%") for part in _split(inside) if part.strip())
    return Instruction(
        name=left.split()[-1].lstrip("%"),
        opcode=opcode,
        leaves=tuple(_leaves(kind)),
        operands=operands,
        attributes=rest[closing + 1 :],
        is_root=left.startswith("ROOT "),
    )


def _leaves(kind: str) -> Iterator[Leaf]:
    for dtype, dims, layout in _LEAF.findall(kind):
        sizes = (int(re.sub(r"[<=\s]", "", d)) for d in dims.split(",") if d.strip())
        yield Leaf(dtype, tuple(sizes), layout)


def _closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if depth == 0:
            return at
    raise ValueError(f"a bracket is not closed: {text[start : start + 80]}")


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket."""
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char in _OPENING) - (char in _CLOSING)
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
