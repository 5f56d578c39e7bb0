"""sympy expressions out of text, without evaluating the text.

sympy's own parser fills in what is left out (multiplication signs, brackets behind functions) by
transformations of tokens, makes Python code of the result and evaluates it. Here the
transformations are sympy's, so that text is understood in the same way; the code is only parsed,
and an expression is built from its syntax tree out of the numbers, letters, functions and operators
named below. Everything else is refused, as are powers and factorials that would not fit into
memory.
"""

import ast
import builtins
import functools
import io
import math
import operator
import tokenize
import types
from collections.abc import Callable
from typing import Any

MOST_BITS = 200_000  # of a power of numbers
MOST_TERMS = 2_000  # of a power of a sum, multiplied out
LARGEST_FACTORIAL = 10_000

CONSTANTS = ("pi", "E", "I", "oo")
FUNCTIONS = frozenset((
    "sqrt", "exp", "log", "ln", "sin", "cos", "tan", "cot", "csc", "asin", "acos", "atan", "acot",
    "acsc", "sinh", "cosh", "tanh", "coth", "asinh", "acosh", "atanh", "acoth", "factorial",
    "factorial2", "li", "Li", "Si", "Ci", "Ei", "N",
))  # fmt: skip
NUMBERS = ("Integer", "Float", "Rational", "Number")

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class Refused(Exception):
    """The text is no expression of the kind that is read here."""


@functools.cache
def sympy() -> Any:
    """The library; it takes half a second to import, and many answers do without."""
    import sympy

    return sympy


def read(text: str, implicit: bool) -> Any:
    """The expression. implicit: multiplication signs may be left out; otherwise decimals are
    fractions and `^` is a power.

    Raises Refused, or whatever Python's tokenizer and sympy raise on nonsense. The caller bounds
    length, nesting and the length of numbers.
    """
    from sympy.parsing import sympy_parser

    steps = sympy_parser.standard_transformations + (
        (sympy_parser.implicit_multiplication_application,)
        if implicit
        else (sympy_parser.rationalize, sympy_parser.convert_xor)
    )
    tokens: Any = [token[:2] for token in tokenize.generate_tokens(io.StringIO(text).readline)]
    for step in steps:
        tokens = step(tokens, {}, _namespace())
    return _build(ast.parse(tokenize.untokenize(tokens).strip(), mode="eval").body)


@functools.cache
def _namespace() -> dict[str, Any]:
    """What the transformations look names up in, to tell functions from letters. Nothing in it is
    called."""
    names = {name: getattr(sympy(), name) for name in sympy().__all__}
    return names | {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, types.BuiltinFunctionType)
    }


def _build(node: ast.AST) -> Any:
    match node:
        case ast.BinOp(left, ast.Pow(), right):
            return _power(_build(left), _build(right))
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATIONS:
            return _OPERATIONS[type(sign)](_build(left), _build(right))
        case ast.UnaryOp(ast.USub(), operand):
            return -_build(operand)
        case ast.UnaryOp(ast.UAdd(), operand):
            return +_build(operand)
        case ast.BoolOp(ast.Or(), values):  # "-2 or -3" is -2, as for Python
            return functools.reduce(lambda first, second: first or second, map(_build, values))
        case ast.Name(name) if name in CONSTANTS:
            return getattr(sympy(), name)
        case ast.Call(ast.Name(name), arguments, []):
            return _call(name, arguments)
        case ast.Call(ast.Call(ast.Name("Function"), [ast.Constant(str(name))], []), arguments, []):
            return sympy().Function(name)(*map(_build, arguments))
    raise Refused


def _call(name: str, arguments: list[ast.expr]) -> Any:
    match name, arguments:
        case "Symbol", [ast.Constant(str(letter))]:
            return sympy().Symbol(letter)
        case _, [ast.Constant(value)] if name in NUMBERS:
            return getattr(sympy(), name)(value)
    values = [_build(argument) for argument in arguments]
    if name == "S" and len(values) == 1:  # sympy's name for what makes an expression of anything
        return values[0]
    if name not in FUNCTIONS and name not in NUMBERS:
        raise Refused
    if name.startswith("factorial") and any(
        v.is_Rational and v > LARGEST_FACTORIAL for v in values
    ):
        raise Refused
    return getattr(sympy(), name)(*values)


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_Rational:
        size = max((_bits(number) for number in base.atoms(sympy().Rational)), default=0)
        if size * abs(exponent) > MOST_BITS:
            raise Refused
    result = base**exponent
    if result.is_Pow and result.base.is_Add and result.exp.is_Integer and result.free_symbols:
        terms, power = len(result.base.args), abs(int(result.exp))
        if math.comb(terms + power - 1, power) > MOST_TERMS:
            raise Refused
    return result


def _bits(number: Any) -> int:
    """Bits that a power of the number grows by with each step of the exponent."""
    if abs(number) in (0, 1):
        return 0
    return max(abs(int(number.p)).bit_length(), int(number.q).bit_length())
