"""What stands in a loop of a compiled program: whether it has a scatter or copies a cache."""

from collections.abc import Iterator

from vinejax.compiled.hlo import Computation, Instruction, Leaf, Module

# A program of these alone moves an array and does nothing to it.
MOVING = frozenset({"copy", "copy-start", "transpose"})
NAMING = frozenset({"fusion", "parameter", "bitcast", "reshape", "tuple", "get-tuple-element"})


def inside(module: Module, loop: str) -> Iterator[tuple[Instruction, frozenset[str]]]:
    """Every instruction of loop `loop`, called computations and inner loops included.

    A fusion is one instruction; it comes with the opcodes that it is made of.
    """
    for name in _by_name(module)[loop].callees:
        yield from _walk(module, module.computations[name])


def with_opcode(module: Module, loop: str, opcode: str) -> list[str]:
    """Names of the loop's instructions that have the opcode, also within a fusion."""
    return [i.name for i, opcodes in inside(module, loop) if opcode in opcodes]


def copies(module: Module, loop: str, dtype: str, elements: int) -> list[str]:
    """Instructions of the loop that copy `elements` or more of a type and do nothing else to them.

    From main memory to main memory. A copy to memory on the chip is a read; for the way back see
    `write_backs`.
    """
    return [name for name, is_main in _moves(module, loop, dtype, elements) if is_main]


def write_backs(module: Module, loop: str, dtype: str, elements: int) -> list[str]:
    """Like `copies`, but from memory on the chip, where the compiler has updated the array.

    The whole array is written for the sake of a part: bytes that an update in place would save.
    """
    return [name for name, is_main in _moves(module, loop, dtype, elements) if not is_main]


def _moves(module: Module, loop: str, dtype: str, elements: int) -> Iterator[tuple[str, bool]]:
    """Name of each large copy that ends in main memory, and whether it starts there too."""
    known = _by_name(module)
    for i, opcodes in inside(module, loop):
        moves = opcodes & MOVING and opcodes <= MOVING | NAMING
        if moves and _large(_written(i), dtype, elements):
            yield i.name, any(_large(known[n].leaves, dtype, elements) for n in i.operands)


def _large(leaves: tuple[Leaf, ...], dtype: str, elements: int) -> bool:
    return any(x.dtype == dtype and x.elements >= elements and x.bytes for x in leaves)


def _by_name(module: Module) -> dict[str, Instruction]:
    return {i.name: i for c in module.computations.values() for i in c.instructions}


def _written(instruction: Instruction) -> tuple[Leaf, ...]:
    """The arrays of the result; those of a copy-start include its operand, which is left out."""
    return instruction.leaves[:1] if instruction.opcode == "copy-start" else instruction.leaves


def _walk(module: Module, computation: Computation) -> Iterator[tuple[Instruction, frozenset[str]]]:
    for i in computation.instructions:
        callees = [module.computations[name] for name in i.callees if name in module.computations]
        if i.opcode == "fusion":
            yield i, frozenset({i.opcode}) | {o for c in callees for o in _opcodes(module, c)}
            continue
        yield i, frozenset({i.opcode})
        if i.opcode in ("while", "call", "conditional", "async-start"):
            for callee in callees:
                yield from _walk(module, callee)


def _opcodes(module: Module, computation: Computation) -> Iterator[str]:
    for i in computation.instructions:
        yield i.opcode
        if i.opcode == "fusion":
            for name in i.callees:
                yield from _opcodes(module, module.computations[name])
