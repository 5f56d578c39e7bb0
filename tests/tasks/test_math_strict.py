"""The strict grade of MATH: public cases, MATH's own answers, spellings, and what is refused."""

import gzip
import json

import pytest

from tests.shared_data import REASON, shared_data
from vinejax import tasks
from vinejax.tasks import Problem
from vinejax.tasks.math import strict

needs_data = pytest.mark.skipif(shared_data() is None, reason=REASON)

# What is known to be wrong among the uncontested cases: neither is a number behind ####.
KNOWN_FAILURES = {
    "dev044": "GSM8K: a percent sign where the gold answer has none",
    "dev045": "GSM8K: an answer without the mark",
}


def boxed(answer: str) -> str:
    return f"So \\boxed{{{answer}}}."


def grade(prediction: str, gold: str) -> float:
    return strict.grade(boxed(prediction), boxed(gold))


def rows(name):
    folder = shared_data()
    assert folder is not None
    data = (folder / name).read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    return [json.loads(line) for line in text.splitlines()]


def case_grade(case) -> float:
    if case["kind"] == "final answer in a GSM8K text":
        problem = Problem(id="p", problem="", solution="", answer=case["gold"])
        return tasks.get("gsm8k").grade_strict(problem, case["prediction"])
    prediction = case["prediction"] if case["form"] == "text" else boxed(case["prediction"])
    return strict.grade(prediction, boxed(case["gold"]))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{1}, then \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"),
        ("\\boxed{42\\\\}", "42\\\\"),
        ("\\boxed 7", "7"),
        ("\\boxed{}", ""),
        ("\\boxed{7", None),
        ("\\boxed", None),
        ("The answer is $5$.\nGood.", "5"),
        ("The final answer is $5$. I hope it is correct.", "5"),
        ("the answer is: 5 or so.", "5 or so"),
        ("Answer is", None),
        ("It is 5.", None),
        ("", None),
    ],
)
def test_answer_of_a_text(text, answer):
    assert strict.answer(text) == answer


@pytest.mark.parametrize(
    ("prediction", "gold", "right"),
    [
        ("0.5", "\\frac{1}{2}", True),
        ("\\dfrac24", "\\frac12", True),
        ("500", "5", False),
        ("0.333", "\\frac13", False),
        ("3.1416", "\\pi", False),
        ("(1,2)", "[1,2]", False),
        ("[1,2)", "(1,2]", False),
        ("2,1", "1,2", True),
        ("1,2,3", "123", False),
        ("2\\cdot3", "6", True),
        ("\\frac{x+1}{2}", "\\frac{1+x}{2}", True),
        ("\\frac{x+1}{2}", "x+\\frac12", False),
        ("11_2", "112", False),
        ("204_6", "204_5", False),
        ("204_6", "204_{6}", True),
        ("10\\,080", "10080", True),
        ("1{,}024", "1024", True),
        ("112,\\!875", "112875", True),
        ("0.1\\overline{6}", "\\frac16", True),
        ("-1.\\overline{3}", "-\\frac43", True),
        ("-0.\\overline{3}", "-\\frac13", True),
        ("\\text{Monday}", "Monday", True),
        ("A,C", "\\text{A, C}", True),
        ("90^\\circ", "90", True),
        ("7 \\text{ cm}", "7", True),
        ("x=3", "3", True),
        ("\\begin{pmatrix}2\\\\1\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", False),
        ("", "5", False),
        ("5", "", False),
    ],
)
def test_equality(prediction, gold, right):
    assert grade(prediction, gold) == float(right)


@pytest.mark.parametrize(
    "answer",
    [
        "2^{100000000}",
        "9^{9^{9}}",
        "9^9^9",
        "((9^{99})^{99})^{99}",
        "(99!)!",
        "12345!",
        "\\binom{1000000000}{500000000}",
        "\\binom{10^9}{5}",
        "\\sum_{n=1}^{1000} n",
        "\\input{/etc/passwd}",
        "{" * 31 + "1" + "}" * 31,
        "1" * 101,
        "x" * (strict.LONGEST + 1),
        "__class__",
        "x_{exec(1)}",
        "\\text{exec}(1)",
        "x.a",
        "f'",
        "a`b",
        '"a"',
        "1\0",
        "\ud800",
    ],
)
def test_what_could_be_costly_or_harmful_equals_itself_only(answer, monkeypatch):
    def reached(*_):
        raise AssertionError("it was parsed")

    monkeypatch.setattr(strict, "_verify", reached)
    assert strict.equal(answer, answer)
    assert not strict.equal(answer, "1")
    assert not strict.equal("1", answer)


@needs_data
def test_public_cases():
    cases = [case for case in rows("grader_cases.jsonl") if not case["contested"]]
    wrong = {case["id"] for case in cases if case_grade(case) != float(case["equivalent"])}
    assert wrong == set(KNOWN_FAILURES)
    assert len(wrong) <= 0.05 * len(cases)


@needs_data
def test_every_gold_is_right():
    problems = rows("math_train.jsonl.gz") + rows("math_test.jsonl.gz")
    assert len(problems) == 12_500
    assert [p["id"] for p in problems if strict.grade(p["solution"], p["solution"]) != 1] == []


@needs_data
def test_every_gold_of_gsm8k_is_right():
    wrong = {"authors": 0, "strict": 0}
    task = tasks.get("gsm8k")
    problems = rows("gsm8k_train.jsonl.gz") + rows("gsm8k_test.jsonl")
    assert len(problems) == 8_792
    for row in problems:
        gold = row["answer"].rpartition("####")[2].strip()
        problem = Problem(id="p", problem=row["question"], solution=row["answer"], answer=gold)
        wrong["authors"] += task.grade(problem, row["answer"]) != 1
        wrong["strict"] += task.grade_strict(problem, row["answer"]) != 1
    assert wrong == {"authors": 93, "strict": 0}  # golds with commas, which the authors keep
