r"""The strict grade of MATH: Math-Verify's judgement of whether two answers are equal.

It stands beside the authors' grade (`compare`), as an independent check. The answer is what stands
in the last box, or behind the last "answer is"; a text with neither has none, and is wrong. Before
the library parses anything,

  - spellings that it misreads are changed: `10\,080`, `1{,}024`, `42\\`, `0.1\overline{6}`;
  - answers that are words, or numbers with a base, are compared as text;
  - answers are refused (equal to none but themselves) that are long, nested deeply, have other
    characters or commands than mathematics has, or powers, factorials or binomials too large to
    compute.

The library reads LaTeX by a grammar, but hands numbers to sympy as strings, which evaluates them as
Python, and sympy at times does the same with what it has simplified. So there must be no quotes, no
attributes and no word (but "and", "or") before a bracket in what it gets. Of its two extractors
only that for LaTeX is used: the other one hands over whole expressions. Its time limits are off, as
they need signals of the main thread; grading workers have their own (`vinejax.grading`).
"""

import functools
import logging
import re
from fractions import Fraction
from typing import Any

LONGEST = 600  # characters of an answer; those of MATH's solutions have at most 159
DEEPEST = 30  # brackets within brackets
LARGEST_POWER = 10_000  # exponent of a number, those of brackets around it multiplied in

COMMAND_NAMES = """
    frac sqrt pi infty cdot times div pm mp left right text textbf mathrm mathbf mathbb mathcal mbox
    hbox textnormal operatorname circ degree in notin cup cap setminus subset subseteq le leq
    leqslant ge geq geqslant lt gt ne neq approx equiv mid sin cos tan cot sec csc arcsin arccos
    arctan sinh cosh tanh log ln exp binom choose over begin end lfloor rfloor lceil rceil lvert
    rvert vert overline bar hat vec emptyset varnothing quad qquad ldots dots cdots triangle angle
    alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi rho sigma
    tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega and or
    displaystyle textstyle big Big bigg Bigg bigl bigr boxed phantom
"""
COMMANDS = frozenset(COMMAND_NAMES.split())
LARGEST_SUM_POWER = 100  # the same where there are letters, and terms to be multiplied out
VARIANTS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
COMMAND = re.compile(r"\\([a-zA-Z]+)")
OTHER_SIGN = re.compile(r"[^\w\s+\-*/^!()\[\]{}.,:;<>=|\\%&°π∞√×÷·−–≤≥≠±∪∩∈]|__")
CALL = re.compile(
    r"(?!(?<![A-Za-z])(?:and|or)\b)(?<![A-Za-z])[A-Za-z]{2,}[\s{}]*[(\[]|\.\s*[A-Za-z_]"
)
BASE = re.compile(r"(\d+)_(?:\{(\d+)\}|(\d))")
WORDS = re.compile(r"\\(?:text|textbf|mbox|mathrm)\{([^{}\\]*)\}")
REPEATING = re.compile(r"(-?\d*)\.(\d{0,20})\\overline\{(\d{1,20})\}")
SPACED = re.compile(r"(?<=\d)(?:\\,|\{,\})(?=\d{3}(?!\d))")
LONG_NUMBER = re.compile(r"\d{101}")
POWER = re.compile(r"([)}\]]?)\s*\^\s*(?:\{([^{}]*)\}|([^{}]))")
TOWER = re.compile(r"\^\s*(?:\{[^{}]*\}|[^{}])\s*\^")
FACTORIAL = re.compile(r"(\w*)\s*!")


def grade(response: str, solution: str) -> float:
    """1 if the final answer of the response is that of the solution, else 0."""
    given, wanted = answer(response), answer(solution)
    if given is None or wanted is None:
        return 0.0
    return float(equal(given, wanted))


def answer(text: str) -> str | None:
    """The final answer that a text states, as LaTeX; None if it states none.

    An empty box is an empty answer: two of MATH's solutions end with one.
    """
    start = text.rfind("\\boxed")
    if start >= 0:
        return _argument(text[start + len("\\boxed") :].lstrip())
    _, marked, rest = text.rpartition("nswer is")
    line = rest.strip().split("\n")[0].lstrip(":").strip().rstrip(".").strip()
    formula = re.match(r"\$+([^$]+)\$", line)
    return (formula[1] if formula else line) or None if marked else None


def _argument(text: str) -> str | None:
    """What is in the braces at the start, or, without braces, the first sign."""
    if not text.startswith("{"):
        return text[:1] or None
    depth = 0
    for sign in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return text[1 : sign.start()].strip()
    return None


def equal(prediction: str, gold: str) -> bool:
    """Whether two LaTeX answers are equal; identical ones are, whatever they are."""
    if prediction == gold:
        return True
    if max(len(prediction), len(gold)) > LONGEST:
        return False
    given, wanted = _spelling(prediction), _spelling(gold)
    if _as_words(given) == _as_words(wanted):
        return True
    if BASE.fullmatch(given) and BASE.fullmatch(wanted):
        return False
    return _is_safe(given) and _is_safe(wanted) and _verify(given, wanted)


def _spelling(text: str) -> str:
    text = text.strip().rstrip("\\").replace("\\!", "").replace("\\$", "").replace("$", "")
    text = SPACED.sub("", VARIANTS.sub(r"\\frac", text))
    text = BASE.sub(lambda match: f"{match[1]}_{{{match[2] or match[3]}}}", text)
    return REPEATING.sub(lambda match: _fraction(*match.groups()), text).strip()


def _fraction(whole: str, digits: str, repeated: str) -> str:
    """A repeating decimal as a fraction."""
    nines = int("9" * len(repeated))
    number = Fraction(int(digits or 0) * nines + int(repeated), nines * 10 ** len(digits))
    number += abs(int(whole.strip("-") or 0))
    sign = "-" if whole.startswith("-") else ""
    return f"{sign}\\frac{{{number.numerator}}}{{{number.denominator}}}"


def _as_words(text: str) -> str:
    """Without the marks of a text, and without blanks."""
    return re.sub(r"\s", "", WORDS.sub(r"\1", text))


def _is_safe(text: str) -> bool:
    if OTHER_SIGN.search(text) or not COMMANDS.issuperset(COMMAND.findall(text)):
        return False
    if CALL.search(COMMAND.sub("", text)):
        return False
    return _depth(text) <= DEEPEST and not LONG_NUMBER.search(text) and _is_computable(text)


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _is_computable(text: str) -> bool:
    """No towers of powers, no large powers, factorials or binomials."""
    if TOWER.search(text):
        return False
    powers = POWER.findall(text)
    largest, stacked = 1, 1  # a power of brackets may be one of a power
    for bracket, braced, sign in powers:
        exponent = max([1, *map(int, re.findall(r"\d+", braced or sign))])
        largest, stacked = max(largest, exponent), stacked * (exponent if bracket else 1)
    most = LARGEST_SUM_POWER if re.search("[a-z]", COMMAND.sub("", text)) else LARGEST_POWER
    if largest * stacked > most or len(powers) != text.count("^"):
        return False
    for of_what in FACTORIAL.findall(text):
        if not re.fullmatch("[a-z]|[0-9]{1,3}", of_what):
            return False
    return not ("binom" in text or "choose" in text) or not re.search(r"\d{5}|\^|!", text)


def _verify(prediction: str, gold: str) -> bool:
    return bool(_library().verify(_parsed(gold), _parsed(prediction), timeout_seconds=None))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> list[Any]:
    library = _library()
    extraction = [library.LatexExtractionConfig()]
    return library.parse(f"\\boxed{{{text}}}", extraction, parsing_timeout=None)


@functools.cache
def _library() -> Any:
    """Math-Verify; it takes a second to import, and most answers do without."""
    import math_verify

    # It warns that its time limits are off.
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return math_verify
