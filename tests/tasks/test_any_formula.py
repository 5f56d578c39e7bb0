"""Any formula, right or broken: graders answer, do not raise, and an answer equals itself."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinejax import tasks
from vinejax.grading import GraderPool
from vinejax.tasks import Problem

ATOMS = st.one_of(
    st.integers(-999, 9999).map(str),
    st.decimals(-99, 99, places=2).map(str),
    st.sampled_from(
        [
            *("x", "y", "n", "\\pi", "\\infty", "-\\infty", "e", "i", "\\theta", "\\emptyset"),
            *("1,000", "12{,}345", ".5", "-.5", "50\\%", "\\$3", "90^\\circ", "\\text{ cm}", "0"),
            *("1/2", "\\frac12", "\\tfrac 1 2", "3\\frac{1}{2}", "\\sqrt2", "1e9", "2^{-1}", "!"),
            *(
                "\\text{even}",
                "(A)",
                "\\textbf{B}",
                "10_{2}",
                "\\{1,2\\}",
                "A_{7}",
                "x^2",
                "\\pm 1",
            ),
            *("{", "}", "(", ")", "[", "]", "\\", "\\left", "\\right", "^", "_", "=", "&", "\\\\"),
        ]
    ),
    st.text(max_size=3),
)
TEMPLATES = (
    *("\\frac{%s}{%s}", "\\dfrac%s%s", "\\sqrt[%s]{%s}", "%s+%s", "%s-%s", "%s%s", "%s\\cdot %s"),
    *("%s^{%s}", "%s_{%s}", "(%s,%s)", "[%s,%s)", "(%s,%s]\\cup(2,3)", "%s,%s", "%s and %s"),
    *("%s=%s", "x\\in[%s,%s]", "\\begin{pmatrix}%s\\\\%s\\end{pmatrix}", "\\left(%s\\right)%s"),
    *("\\{%s,%s\\}", "%s\\text{ %s}", "%s \\mbox{ %s}", "%s\\le %s", "\\binom{%s}{%s}", "%s:%s"),
)
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.builds(
        lambda form, a, b: form % (a, b), st.sampled_from(TEMPLATES), inner, inner
    ),
    max_leaves=6,
)
PLACES = st.sampled_from(["\\boxed{%s}", "The answer is %s", "final answer is $%s$. I hope", "%s"])
QUESTIONS = st.sampled_from(["Find it.", "List all, separated by commas.", "In base 7.", "$x=$?"])


@pytest.fixture(scope="module")
def graders() -> Iterator[GraderPool]:
    with GraderPool("math", {}, workers=1, limit=10.0) as pool:
        yield pool


@given(question=QUESTIONS, gold=FORMULAS, place=PLACES, response=FORMULAS)
def test_graders_answer_for_any_two_formulas(
    graders: GraderPool, question: str, gold: str, place: str, response: str
):
    """A formula may take too long; a grader that raises, or ends its worker, is wrong."""
    problem = Problem(id="p", problem=question, solution=f"\\boxed{{{gold}}}", answer=gold)
    for strict in (False, True):
        (verdict,) = graders.grade([(problem, place.replace("%s", response))], strict=strict)
        assert verdict.note in ("", "timeout")
        assert verdict.grade in (0.0, 1.0)


@given(question=QUESTIONS, formula=FORMULAS)
def test_an_answer_equals_itself(graders: GraderPool, question: str, formula: str):
    solution = f"\\boxed{{{formula}}}"
    problem = Problem(id="p", problem=question, solution=solution, answer=formula)
    if not tasks.get("math").extract_answer(solution):
        return
    (verdict,) = graders.grade([(problem, solution)])
    assert verdict.grade == 1.0 or verdict.note == "timeout"
