r"""Equality of two formulas, by algebra or by value: the last rule of `compare`.

A formula is LaTeX; pylatexenc makes text of it, which is then read like a Python expression in
which multiplication signs may be left out. The text has no brackets where a fraction had braces:
`\frac{x+1}{2}` is x+1/2, and `11_2` the integer 112. Published numbers rest on these readings, so
the authors' code is followed to the letter (`math_grader.py`, `math_grader_minerva.py`, commit
efe7228), but for one thing: theirs evaluates the text as Python, whatever it is. Here

  1. text with characters other than letters, digits, + - * / ^ ! ( ) [ ] . , _ and blanks is
     refused, as is text that is long, nested deeply or has long numbers;
  2. `expression.read` builds an expression of what is left, out of known functions only.

What is refused is not equal. Nothing is ever passed to eval, exec, sympify or parse_expr.

Verdicts depend on the versions of pylatexenc (2.10) and sympy, which requirements.txt pins. The
authors' tables were made with sympy 1.12; 1.14 gives the same verdicts on all of them, and this
module agrees with the authors' code on sympy 1.12 in 42,000 further pairs, varied from MATH's
answers or made of random formulas.
"""

import functools
import logging
import math
import re
from typing import Any

from vinejax.tasks.math.expression import Refused, read, sympy

LONGEST = 1_000  # characters of a text; formulas in MATH's answers have at most 159
DEEPEST = 50  # brackets within brackets
MOST_DIGITS = 400  # of one number, its decimals included
TOLERANCE = 1e-3

# As far as known names are concerned, `arccos` is none: the authors look for it only after `cos`.
KNOWN = ("sqrt", "frac", "pi", "inf", "cos", "sin", "tan", "cot", "log", "ln", "exp")
TOO_HARD = re.compile(
    r"\^\{|\^\(|\^[0-9]+\^|\^-?[0-9][0-9]|\*\*[0-9]+\*\*|\*\*-?[0-9][0-9]|[0-9]{3}!"
)
OTHER_SIGN = re.compile(r"[^\w+\-*/^!()\[\]., \n\t]")
LONG_NUMBER = re.compile(rf"[\d.]{{{MOST_DIGITS + 1}}}|[eE][+-]?\d{{5}}|\d[_\d]{{{MOST_DIGITS}}}")
MIXED = re.compile("([0-9]) +([0-9])")
SIGNS = {"√": "sqrt", "π": "pi", "∞": "inf", "∪": "U", "·": "*", "×": "*"}


def equal(prediction: str, gold: str) -> bool:
    """Whether two LaTeX formulas are the same number within 1e-3, or algebraically the same."""
    given, wanted = _text(prediction), _text(gold)
    if given is None or wanted is None or _is_hard(given) or _is_hard(wanted):
        return False
    # Values first: they are quick, and algebra may run into the time limit.
    return _values_close(given, wanted) or _difference_vanishes(given, wanted)


def _values_close(given: str, wanted: str) -> bool:
    """By value; multiplication signs must not be left out."""
    try:
        return math.isclose(_value(given), _value(wanted), abs_tol=TOLERANCE)
    except Exception:  # sympy may raise anything on nonsense
        return False


@functools.lru_cache(maxsize=4096)
def _value(text: str) -> float:
    text = text.partition("#")[0].replace("\n", "")  # Python's sign for comments
    return float(read(_checked(text), implicit=False).evalf())


def _difference_vanishes(given: str, wanted: str) -> bool:
    text = MIXED.sub(r"\1+\2", f"({given})-({wanted})")  # 7 3/4 is 7+3/4
    try:
        return _is_zero(read(_checked(text.replace(" ", "").replace("^", "**")), implicit=True))
    except Exception:
        return False


def _is_zero(difference: Any) -> bool:
    """Whether simplify makes it 0; shorter ways come first, as simplify takes milliseconds."""
    if not difference.args:
        return bool(difference == 0)
    if _is_nonzero(difference):
        return False
    return bool(sympy().expand(difference) == 0 or sympy().simplify(difference) == 0)


def _is_nonzero(difference: Any) -> bool:
    """Whether its value at some point, of no special properties, rules out that it is 0."""
    letters = sorted(difference.free_symbols, key=str)
    point = {letter: sympy().Rational(7919, 6007 + 1013 * i) for i, letter in enumerate(letters)}
    try:
        value = difference.evalf(15, subs=point)
        return bool(value.is_number and abs(value) > 1e-6)
    except Exception:
        return False


# --- LaTeX to text ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _text(latex: str) -> str | None:
    """The formula as pylatexenc writes it; None if it cannot."""
    if len(latex) > LONGEST:
        return None
    latex = latex.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac")
    try:
        text = _converter().latex_to_text(latex.replace("\\frac", " \\frac"))
    except Exception:  # as pylatexenc may on half a formula
        return None
    for sign, name in SIGNS.items():
        text = text.replace(sign, name)
    return text.strip()


@functools.cache
def _converter() -> Any:
    from pylatexenc import latex2text

    logging.getLogger("pylatexenc").setLevel(logging.ERROR)
    return latex2text.LatexNodes2Text()


def _is_hard(text: str) -> bool:
    """The authors' rule against formulas that may take long."""
    rest = text
    for name in KNOWN:
        rest = rest.replace(name, "")
    letters = {letter for letter in rest if letter.isalpha()}
    return len(letters) > 2 or TOO_HARD.search(text) is not None


def _checked(text: str) -> str:
    """The text; raises Refused if it may be harmful, or costly to read."""
    if OTHER_SIGN.search(text) or LONG_NUMBER.search(text):
        raise Refused
    if len(text) > 3 * LONGEST or _depth(text) > DEEPEST:  # it may be a difference of two
        raise Refused
    return text


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        deepest = max(deepest, depth)
    return deepest
