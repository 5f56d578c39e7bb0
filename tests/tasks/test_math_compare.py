"""The authors' verdicts on MATH answers: tables of them, real responses, and all golds."""

import gzip
import json

import pytest

from tests.shared_data import REASON, shared_data
from tests.tasks.math_verdicts import PAIRS, TEXTS
from vinejax.tasks.math import symbolic
from vinejax.tasks.math.compare import equal, equal_lists
from vinejax.tasks.math.extract import answers

needs_data = pytest.mark.skipif(shared_data() is None, reason=REASON)


def rows(name):
    folder = shared_data()
    assert folder is not None
    with gzip.open(folder / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def verdict(prediction: str, gold: str, question: str = "Find it.") -> bool:
    return equal_lists(answers(prediction, question), answers(gold, question))


@pytest.mark.parametrize(("prediction", "gold", "correct", "rule"), PAIRS)
def test_pairs(prediction, gold, correct, rule):
    texts = [f"So \\boxed{{{answer}}}." for answer in (prediction, gold)]
    assert verdict(*texts) is correct, rule


@pytest.mark.parametrize(("prediction", "gold", "question", "correct", "rule"), TEXTS)
def test_whole_texts(prediction, gold, question, correct, rule):
    assert verdict(prediction, gold, question) is correct, rule


@pytest.mark.parametrize(
    ("prediction", "gold", "correct"),
    [
        # What the tables lack, by the same functions.
        ("\\arccos(1)", "0", False),  # a known name to the paper's text, but not to their code
        ("\\arcsin(x)+1", "1+\\arcsin(x)", False),
        ("3\\text{ or }4", "3", False),
        ("-2\\text{ or }-312", "-2\\text{ or }-12", True),  # Python's "or": both are -2
        ("S(x)+1", "1+S(x)", True),  # names of sympy
        ("0.[3]", "\\frac{1}{3}", True),  # sympy's repeating decimals
        ("E", "2.7183", True),
        ("re", "er", False),  # a function of sympy's, not two letters
        ("rs", "sr", True),
        ("f(x)+1", "1+f(x)", True),
        ("1_000", "1000", True),
        ("3#4", "\\frac{6}{2}", True),  # Python's comment
        ("99!", "98!\\times 99", True),
        ("100!", "99!\\times 100", False),
        ("x^9^9", "(x^9)^9", False),
        ("x<1", "1>x", False),
        ("|x|", "|x|+0", False),
        ("1+\\bar{x}", "\\bar{x}+1", False),
        ("\\theta+1", "1+\\theta", True),
        ("1e400", "1e500", True),  # both infinite to Python
        ("nan", "nan+0", False),
    ],
)
def test_further_pairs(prediction, gold, correct):
    assert verdict(f"\\boxed{{{prediction}}}", f"\\boxed{{{gold}}}") is correct


def test_lists_match_in_any_order_without_duplicates():
    assert equal_lists(["2", "1", "1.0"], ["1", "2"]) is False  # the last two: 1 and 1.0
    assert equal_lists(["2", "1", "1"], ["1", "2"])
    assert equal_lists(["1"], ["1", "2"]) is False
    assert equal_lists(["0", "1"], ["1"])
    assert equal_lists([], [])
    assert equal_lists([], ["1"]) is equal_lists(["1"], []) is False


def test_grading_is_the_same_in_any_order_and_again():
    pairs = [(prediction, gold) for prediction, gold, _, _ in PAIRS]
    forward = {pair: equal(*pair) for pair in pairs}
    assert {pair: equal(*pair) for pair in reversed(pairs)} == forward


def test_an_algebra_that_gives_up_is_no_error(monkeypatch):
    def fail(_):
        raise RuntimeError("gave up")

    monkeypatch.setattr(symbolic.sympy(), "simplify", fail)
    assert equal("\\sin^2(y)+\\cos^2(y)", "y") is False


def test_numbers_need_no_sympy(monkeypatch):
    monkeypatch.setattr(symbolic, "sympy", None)
    monkeypatch.setattr(symbolic, "read", None)
    assert equal("1,000", "1000.0")
    assert not equal("4", "5")


@needs_data
def test_verdicts_of_the_authors_on_real_responses():
    wrong = [
        row
        for row in rows("oracles/math_grades.jsonl.gz")
        if verdict(row["response"], row["solution"], row["problem"]) is not row["correct"]
    ]
    assert wrong == []


@needs_data
def test_every_gold_equals_itself():
    """Two golds have a box without braces, and so no answer: no lists are equal to each other, but
    a response that states an answer cannot be right."""
    problems = rows("math_train.jsonl.gz") + rows("math_test.jsonl.gz")
    assert len(problems) == 12_500
    golds = {row["id"]: answers(row["solution"], row["problem"]) for row in problems}
    assert [name for name, gold in golds.items() if not equal_lists(gold, gold)] == []
    assert [name for name, gold in golds.items() if not gold] == [
        "train/algebra/24014.json",
        "train/algebra/25040.json",
    ]
    assert not equal_lists(["2"], golds["train/algebra/24014.json"])
