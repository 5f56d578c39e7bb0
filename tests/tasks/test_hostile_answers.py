"""Answers made to run code or to exhaust a grader: no effect, and a verdict in time.

The texts go through both graders of MATH and of GSM8K, in the places where graders look: boxes,
lists, tuples, matrices, equations, plain text.
"""

import resource
import socket
import subprocess
import sys
import time

import pytest

from vinejax import tasks
from vinejax.grading import GraderPool, Verdict, limits
from vinejax.tasks import Problem, Task
from vinejax.tasks.math import compare, strict, symbolic

COMMAS = "List them, separated by commas."
PLACES = (
    "\\boxed{%s}",
    "\\boxed{1, %s}",
    "\\boxed{(1,%s)}",
    "\\boxed{x=%s}",
    "\\boxed{\\begin{pmatrix}%s\\end{pmatrix}}",
    "\\boxed{[1,2]\\cup %s}",
    "The answer is %s",
    "final answer is $%s$. I hope",
    "#### %s",
)
GOLDS = ("\\boxed{1}", "\\boxed{(1,2)}", "\\boxed{x=1}", "\\boxed{[1,2]\\cup[3,4]}", "\\boxed{x+1}")


def injections(path) -> list[str]:
    """Python that makes a file, in the shapes that get past one or another filter."""
    code = f"open('{path}','w')"
    characters = "+".join(f"chr({ord(character)})" for character in code)
    return [
        code,
        f"__import__('os').system('touch {path}')",
        f"().__class__.__base__.__subclasses__()[0]({code})",
        f"(lambda:{code})()",
        f"f'{{{code}}}'",
        f"exec({characters})",
        f"\\text{{{code}}}+7",  # at the end it would be a unit, and cut off
        f"x.{code}",
    ]


def problem(question, gold):
    return Problem(id="p", problem=question, solution=gold, answer="1")


def graded(task, question, gold, response):
    return task.grade(problem(question, gold), response), task.grade_strict(
        problem(question, gold), response
    )


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", ["math", "gsm8k"])
def test_code_is_not_run(name, number, tmp_path):
    task, path = tasks.get(name), tmp_path / "made"
    for place in PLACES:
        response = place % injections(path)[number]
        for question in ("Find it.", COMMAS):
            for gold in GOLDS:
                assert graded(task, question, gold, response) == (0.0, 0.0)
    assert not path.exists()


@pytest.mark.parametrize("number", range(8))
def test_code_is_not_run_where_text_is_parsed(number, tmp_path):
    """Past extraction and clean-up, which take some code apart."""
    path = tmp_path / "made"
    code = injections(path)[number]
    for gold in ("1", "x+1", "(1,2)"):
        assert not compare.equal(code, gold)
        assert not compare.equal(gold, code)
        assert not symbolic.equal(code, gold)
        assert not symbolic._values_close(code, gold)
        assert not symbolic._difference_vanishes(code, gold)
        assert not strict.equal(code, gold)
        assert not strict.equal(gold, code)
    assert not path.exists()


def test_formulas_are_read_without_evaluation(monkeypatch):
    def evaluated(*_, **__):
        raise AssertionError("text was evaluated")

    for name in ("eval_expr", "parse_expr"):
        monkeypatch.setattr(f"sympy.parsing.sympy_parser.{name}", evaluated)
    monkeypatch.setattr("builtins.eval", evaluated)
    assert compare.equal("\\sqrt{12}", "2\\sqrt{3}")
    assert compare.equal("1.0472", "\\pi/3")
    assert not compare.equal("f(x)", "x+1")


MILLION = 1_000_000
SIZES = {
    "power": "9^{999999999}",
    "tower": "9^9^9^9^9",
    "tower in brackets": "(((((((9^9)^9)^9)^9)^9)^9)^9)^9",
    "braced tower": "9^{9^{9^{9}}}",
    "sum": "(((x+y+1)^9)^9)^9",
    "product": "(x+y+1)^9" * 100,
    "factorial": "9999999!",
    "factorials": "((99!)!)!",
    "double factorial": "99!!",
    "float": "1e999999999",
    "sine": "\\sin(9^9^9)",
    "repeated string": "'1'*9999999999",
    "list": "[0]*9999999999",
    "range": "0..9999999999",
    "shift": "1<<9999999999",
    "long": "1" * MILLION,
    "long sum": "1+" * (MILLION // 2) + "1",
    "long text": "a b" * (MILLION // 3),
    "parentheses": "(" * MILLION,
    "tuples": "(" * 5_000 + "1" + ",1)" * 5_000,
    "braces": "{" * 100_000 + "}" * 100_000,
    "roots": "\\sqrt{" * 300 + "2" + "}" * 300,
    "fractions": "\\frac" * 200_000,
    "few fractions": "\\frac" * 150,
    "fences": "\\left(" * 100_000,
    "texts": "\\text{" * 100_000 + "}",
    "unions": "\\cup" * 200_000,
    "nul": "1\0",
    "nuls": "\0" * MILLION,
    "surrogate": "\ud800",
    "surrogates": "\udfff" * MILLION,
    "combining": "x" + "\u0301" * MILLION,
    "digits": "\N{ARABIC-INDIC DIGIT THREE}" * MILLION,
    "input": "\\input{/dev/zero}",
    "newlines": "\n" * MILLION,
    "blanks": "1" + " " * MILLION + "t",
    "equations": "x=" * (MILLION // 2),
    "binomial": "\\binom{999999999}{99999999}",
    "sum of a series": "\\sum_{n=1}^{999999999}\\frac{1}{n}",
}


@pytest.mark.parametrize("name", SIZES)
def test_size_attacks_get_a_verdict(name):
    started = time.process_time()
    for place in PLACES[1:4]:
        graded(tasks.get("math"), COMMAS, GOLDS[0], place % SIZES[name])
    graded(tasks.get("gsm8k"), "", "", "#### " + SIZES[name])
    assert time.process_time() - started < 15  # for all seven; one may take that long


def test_hostile_answers_in_workers():
    right = problem("", "\\boxed{x+1}")
    responses = ["\\boxed{1+x}", *(f"\\boxed{{{text}}}" for text in SIZES.values()), "\\boxed{1+x}"]
    with GraderPool("math", {}, workers=1, limit=15.0) as graders:
        for is_strict in (False, True):
            items = [(right, response) for response in responses]
            first, *others, last = graders.grade(items, strict=is_strict)
            assert first == last == Verdict(1.0)
            assert others == [Verdict(0.0)] * len(SIZES)


# --- the limits of workers ----------------------------------------------------------------------


class Escaping(Task):
    """Tries what the response names; 1 if it works."""

    name = "escaping"

    def __init__(self, folder: str = ""):
        self.folder = folder

    def load(self, split):
        return []

    def extract_answer(self, response):
        return response

    def grade(self, problem, response):
        if response == "large file":
            with open(f"{self.folder}/large", "wb") as file:
                file.write(bytes(limits.FILE_SIZE + 1))
        elif response == "memory":
            bytearray(2 * limits.MEMORY)
        elif response == "connect":
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        elif response == "bind":
            socket.socket().bind(("127.0.0.1", 0))
        elif response == "subprocess":
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        elif response == "small file":
            with open(f"{self.folder}/small", "wb") as file:
                file.write(b"some")
        return 1.0


@pytest.mark.parametrize(
    ("response", "note"),
    [
        ("connect", "error: PermissionError"),
        ("bind", "error: PermissionError"),
        ("subprocess", "error: PermissionError"),
        ("large file", "error: OSError"),
        pytest.param(
            "memory",
            "error: MemoryError",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux's"),
        ),
        ("small file", ""),
    ],
)
def test_workers_are_confined(response, note, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with GraderPool(f"{__name__}:Escaping", {"folder": str(tmp_path)}, workers=1) as graders:
        (verdict,) = graders.grade([(problem("", ""), response)])
    assert verdict.note.startswith(note)
    assert verdict.grade == float(not note)
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before  # this process is not
