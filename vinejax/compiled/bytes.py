"""Bytes that a compiled program moves, counted from its text; a loop's body is one step.

Every instruction reads its operands and writes its result. Three things are counted as what they
touch, where XLA's own cost analysis counts whole buffers: an in-place update (dynamic-update-slice,
scatter; also as the result of a fusion) reads and writes its slice, a slice (also inside a fusion)
reads what it takes, and what merely names a buffer (tuples, bitcasts) moves nothing. Loops are
reported on their own, one trip of body and condition each, since the text seldom says how often one
runs.

What it cannot see: whether an update of a fusion's operand shares its buffer (it is assumed to,
since XLA makes a copy of its own, which is counted, where it must not), caches, and the inside of a
custom call.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from vinejax.compiled import hlo
from vinejax.compiled.hlo import Computation, Instruction, Module

# These name or order buffers.
FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "domain"}
    | {"opt-barrier", "optimization-barrier", "partition-id", "replica-id", "add-dependency"}
    | {"async-update", "while", "send", "send-done", "recv", "recv-done"}
)
SLICES = frozenset({"dynamic-slice", "slice", "gather"})
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # and the operand that holds the update
# Inside a fusion these are computed for the elements that are asked for, and read no others.
LAZY = frozenset(
    {"bitcast", "reshape", "convert", "copy", "transpose", "bitcast-convert", "reduce"}
    | {"add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negate", "abs"}
    | {"and", "or", "xor", "not", "compare", "select", "clamp", "is-finite", "sign", "floor"}
    | {"exponential", "log", "log-plus-one", "exponential-minus-one", "logistic", "tanh"}
    | {"rsqrt", "sqrt", "cosine", "sine", "shift-left", "shift-right-logical"}
)


@dataclass(frozen=True)
class Moved:
    """What one instruction moves."""

    name: str
    opcodes: frozenset[str]  # its own and, of a fusion, those inside
    read: int  # bytes
    written: int  # bytes
    source: str  # the operation of the program that it comes from

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written


@dataclass(frozen=True)
class Loop:
    """One trip of a while loop, body and condition, without the loops inside it."""

    name: str
    inside: str  # the loop it runs in, "" if none
    trips: int | None  # None: the text does not say
    moved: tuple[Moved, ...]
    source: str

    @property
    def bytes(self) -> int:
        """Bytes of a trip."""
        return sum(m.bytes for m in self.moved)


@dataclass(frozen=True)
class Traffic:
    """A whole program: what runs once, and its loops, outer ones first."""

    once: tuple[Moved, ...]
    loops: tuple[Loop, ...]

    @property
    def bytes_once(self) -> int:
        """Bytes outside all loops."""
        return sum(m.bytes for m in self.once)

    @cached_property
    def heaviest(self) -> Loop:
        """The loop whose trip moves most, its inner loops not counted."""
        return max(self.loops, key=lambda loop: loop.bytes)

    def total(self, unknown_trips: int = 1) -> int:
        """Bytes of the whole program; `unknown_trips` as in `step_bytes`."""
        outer = [loop for loop in self.loops if not loop.inside]
        trips = [unknown_trips if loop.trips is None else loop.trips for loop in outer]
        return self.bytes_once + sum(
            n * self.step_bytes(loop.name, unknown_trips)
            for n, loop in zip(trips, outer, strict=True)
        )

    def step_bytes(self, name: str, unknown_trips: int = 0) -> int:
        """Bytes of a trip of loop `name` with its inner loops.

        Those whose trips the text does not say count `unknown_trips` times.
        """
        total = next(loop for loop in self.loops if loop.name == name).bytes
        for inner in self.loops:
            if inner.inside == name:
                trips = unknown_trips if inner.trips is None else inner.trips
                total += trips * self.step_bytes(inner.name, unknown_trips) if trips else 0
        return total


def count(text: str) -> Traffic:
    """The traffic of a compiled program. Raises ValueError for a text that is none."""
    module = hlo.parse(text)
    loops: list[Loop] = []
    once = tuple(_walk(module, module.computations[module.entry], "", loops))
    return Traffic(once, tuple(loops))


def _walk(
    module: Module, computation: Computation, inside: str, loops: list[Loop]
) -> Iterator[Moved]:
    """What a computation moves, called ones included; loops are added to `loops`."""
    for instruction in computation.instructions:
        callees = [module.computations[name] for name in instruction.callees]
        if instruction.opcode == "while":
            at = len(loops)
            names = (instruction.role("condition"), instruction.role("body"))
            inner: list[Loop] = []
            moved = [
                m
                for name in names
                for m in _walk(module, module.computations[name], instruction.name, inner)
            ]
            trips = module.trips(instruction)
            loop = Loop(instruction.name, inside, trips, tuple(moved), instruction.source)
            loops[at:] = [loop, *inner]
        elif instruction.opcode in ("call", "async-start") and callees:
            for callee in callees:
                yield from _walk(module, callee, inside, loops)
        elif instruction.opcode == "conditional":
            branches = [list(_walk(module, callee, inside, loops)) for callee in callees]
            yield from max(branches, key=lambda branch: sum(m.bytes for m in branch))
        elif instruction.opcode not in FREE and not instruction.opcode.endswith("-done"):
            yield _moved(module, computation, instruction)


def _moved(module: Module, computation: Computation, instruction: Instruction) -> Moved:
    opcodes = {instruction.opcode}
    operands = [computation.by_name[name] for name in instruction.operands]
    if instruction.opcode == "fusion":
        opcodes |= {i.opcode for i in _inside(module, instruction)}
        callee = module.computations[instruction.callees[0]]
        updates = _updates(callee)
        shares = _shares(module, callee, updates)
        read = sum(
            round(operand.bytes * shares[callee.parameter(i).name])
            for i, operand in enumerate(operands)
        )
        written = _written(module, callee, callee.root, updates)
    else:
        read, written = _plain(instruction, operands)
    return Moved(instruction.name, frozenset(opcodes), read, written, instruction.source)


def _plain(instruction: Instruction, operands: list[Instruction]) -> tuple[int, int]:
    """Bytes read and written by an instruction that is no fusion."""
    given, result = sum(o.bytes for o in operands), instruction.bytes
    opcode = instruction.opcode
    if opcode in UPDATES:
        update = operands[UPDATES[opcode]].bytes
        others = sum(o.bytes for o in operands[2:] if opcode == "dynamic-update-slice")
        if opcode == "scatter":  # the old values are combined with the new ones
            return 2 * update + operands[1].bytes, update
        return update + others, update
    if opcode in SLICES:
        share = min(1.0, instruction.elements / max(1, operands[0].elements))
        return round(operands[0].bytes * share) + sum(o.bytes for o in operands[1:]), result
    if opcode == "copy-start":
        return given, instruction.leaves[0].bytes
    if opcode == "slice-start":  # its result: the operands, the slice, a context
        taken = instruction.leaves[len(operands)]
        return taken.stored_bytes, taken.bytes
    if opcode.endswith("-start"):  # its result names the operands too
        written = max(0, result - given)
        return given, written
    if opcode == "custom-call" and instruction.target.startswith("__cu"):
        # cuBLAS and cuDNN return their scratch space, a flat array of bytes, beside the result.
        scratch = [x for x in instruction.leaves if x.dtype in ("s8", "u8") and len(x.dims) == 1]
        return given, result - sum(x.bytes for x in scratch)
    return given, result


def _inside(module: Module, instruction: Instruction) -> Iterator[Instruction]:
    """The instructions of a fusion, nested fusions' included."""
    for name in instruction.callees:
        for i in module.computations[name].instructions:
            yield i
            if i.opcode == "fusion":
                yield from _inside(module, i)


def _results(computation: Computation, at: Instruction) -> Iterator[Instruction]:
    """The instructions that make the results, tuples and bitcasts taken apart."""
    if at.opcode in ("tuple", "bitcast"):
        for name in at.operands:
            yield from _results(computation, computation.by_name[name])
    else:
        yield at


def _updates(computation: Computation) -> frozenset[str]:
    """Names of the updates that write a fusion's result in place of one of its operands."""
    found: set[str] = set()
    for at in _results(computation, computation.root):
        chain: list[str] = []
        while at.opcode in UPDATES or at.opcode == "bitcast":
            chain += [at.name] if at.opcode in UPDATES else []
            at = computation.by_name[at.operands[0]]
        if at.opcode == "parameter":
            found.update(chain)
    return frozenset(found)


def _written(
    module: Module, computation: Computation, root: Instruction, updates: frozenset[str]
) -> int:
    """Bytes that a fusion writes: of updates in place their slices only."""
    total = 0
    for result in _results(computation, root):
        if result.opcode == "fusion":
            callee = module.computations[result.callees[0]]
            total += _written(module, callee, callee.root, _updates(callee))
            continue
        if result.name not in updates:
            total += result.bytes
        while result.name in updates or result.opcode == "bitcast":
            if result.name in updates:
                place = UPDATES[result.opcode]
                total += computation.by_name[result.operands[place]].bytes
            result = computation.by_name[result.operands[0]]
    return total


def _shares(module: Module, computation: Computation, updates: frozenset[str]) -> dict[str, float]:
    """Of each value in a fusion, the share that is needed for the fusion's results."""
    shares: dict[str, float] = {}
    for value in reversed(computation.instructions):  # users come before what they use
        used = computation.users.get(value.name, ())
        needed = sum(_needed(module, computation, value, u, i, updates, shares) for u, i in used)
        shares[value.name] = 1.0 if value.is_root else min(1.0, needed)
    return shares


def _needed(
    module: Module,
    computation: Computation,
    value: Instruction,
    user: Instruction,
    place: int,
    updates: frozenset[str],
    shares: dict[str, float],
) -> float:
    """The share of a value that `user`, which has it as operand number `place`, reads."""
    if user.opcode in SLICES and place == 0:
        return shares[user.name] * user.elements / max(1, value.elements)
    if user.opcode in UPDATES and place == 0 and user.name in updates:
        if user.opcode == "dynamic-update-slice":  # replaces; a scatter combines
            return 0.0
        update = computation.by_name[user.operands[UPDATES["scatter"]]]
        return update.elements / max(1, value.elements)
    if user.opcode in LAZY:
        return shares[user.name]
    if user.opcode == "fusion":
        callee = module.computations[user.callees[0]]
        inner = _shares(module, callee, _updates(callee))[callee.parameter(place).name]
        return inner * shares[user.name]
    return 1.0
