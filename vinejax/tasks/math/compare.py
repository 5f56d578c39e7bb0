"""Whether extracted MATH answers are equal, as VinePPO's authors decide it: DeepSeekMath's rules,
`math_grader_minerva.py` in their repository, commit efe7228. `symbolic` is the last of them.

The verdicts are lenient in places (5 = 500, [1,2) = (1,2], 3.1416 = pi) and strict in others (sets
in braces are not reordered); they are kept, as published numbers rest on them.
"""

import math
from collections.abc import Sequence

from vinejax.tasks.math import symbolic
from vinejax.tasks.math.extract import LONGEST

TOLERANCE = 1e-3
DEEPEST = 20  # brackets within brackets; the authors' code fails at some hundreds

_BEGIN = ("\\begin{pmatrix}", "\\begin{bmatrix}")
_END = ("\\end{pmatrix}", "\\end{bmatrix}")


def equal_lists(predictions: Sequence[str], golds: Sequence[str]) -> bool:
    """Whether the last predictions, as many as there are golds, match them in any order.

    Duplicates don't count. Two empty lists are equal.
    """
    wanted = list(dict.fromkeys(golds))
    given = list(dict.fromkeys(predictions))[-len(wanted) :]
    return _match(given, wanted)


def equal(prediction: str, gold: str) -> bool:
    """Whether one answer equals another; unions of intervals in any order."""
    if "\\cup" in prediction and "\\cup" in gold:
        return _match(prediction.split("\\cup"), gold.split("\\cup"))
    given, wanted = _float(prediction), _float(gold)
    if given is not None and wanted is not None and abs(given - wanted) < TOLERANCE:
        return True
    return _equal_parts(prediction, gold, 0)


def _match(given: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether each of both sides has an equal on the other."""
    matched: set[int] = set()
    for prediction in given:
        partners = {i for i, gold in enumerate(wanted) if equal(prediction, gold)}
        if not partners:
            return False
        matched |= partners
    return len(matched) == len(wanted)


def _equal_parts(prediction: str, gold: str, depth: int) -> bool:
    if prediction == gold:
        return True
    if max(len(prediction), len(gold)) > LONGEST or depth > DEEPEST:
        return False
    given, wanted = _number(prediction), _number(gold)
    if given is not None and wanted is not None:
        return _close_numbers(given, wanted)
    if not prediction:
        return False
    prediction, gold = prediction.strip(), gold.strip()
    return (
        _equal_groups(prediction, gold, depth)
        or _equal_matrices(prediction, gold, depth)
        or _equal_equations(prediction, gold, depth)
        or symbolic.equal(prediction, gold)
    )


def _close_numbers(prediction: float, gold: float) -> bool:
    """Percentages are tolerated, whichever side forgot the sign."""
    return any(
        math.isclose(value, prediction, abs_tol=TOLERANCE)
        for value in (gold / 100, gold, gold * 100)
    )


def _equal_groups(prediction: str, gold: str, depth: int) -> bool:
    """Tuples and intervals, part by part. Their last characters are cut off whatever they are."""
    if not (_is_group(prediction) and _is_group(gold)):
        return False
    return _equal_rows(prediction[1:-1].split(","), gold[1:-1].split(","), depth)


def _is_group(text: str) -> bool:
    return text[:1] in ("(", "[") and max(text.rfind(")"), text.rfind("]")) >= 2


def _equal_rows(predictions: list[str], golds: list[str], depth: int) -> bool:
    return len(predictions) == len(golds) and all(
        _equal_parts(prediction, gold, depth + 1)
        for prediction, gold in zip(predictions, golds, strict=True)
    )


def _equal_matrices(prediction: str, gold: str, depth: int) -> bool:
    given, wanted = _matrix_rows(prediction), _matrix_rows(gold)
    return (
        given is not None
        and wanted is not None
        and len(given) == len(wanted)
        and all(
            _equal_rows(row.split("&"), other.split("&"), depth)
            for row, other in zip(given, wanted, strict=True)
        )
    )


def _matrix_rows(text: str) -> list[str] | None:
    if not (text.startswith(_BEGIN) and text.endswith(_END)):
        return None
    rows = text[len(_BEGIN[0]) : -len(_END[0])].split("\\\\")
    return [row.strip() for row in rows if row.strip()]


def _equal_equations(prediction: str, gold: str, depth: int) -> bool:
    """Two equations: the same but for the sign. One: its right side, if a short name is on the
    left."""
    given, wanted = prediction.split("="), gold.split("=")
    if len(given) == len(wanted) == 2:
        left, right = (f"{side[0].strip()} - ({side[1].strip()})" for side in (given, wanted))
        return symbolic.equal(left, right) or symbolic.equal(f"-({left})", right)
    if len(given) == 2 and len(wanted) == 1 and len(given[0].strip()) <= 2:
        return _equal_parts(given[1], gold, depth + 1)
    if len(wanted) == 2 and len(given) == 1 and len(wanted[0].strip()) <= 2:
        return _equal_parts(prediction, wanted[1], depth + 1)
    return False


def _number(text: str) -> float | None:
    """A number, or a percentage as its hundredth."""
    number = _float(text)
    if number is None and text.replace(",", "").endswith("%"):
        number = _float(text.replace(",", "").removesuffix("%").removesuffix("\\"))
        return None if number is None else number / 100
    return number


def _float(text: str) -> float | None:
    """As Python reads it, commas left out: 1e3 and 1_000 are numbers, as are nan and inf."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
