"""What an answer that takes too long may cost: one limit, whatever is in it and around it."""

import pytest

from experiments import configs
from tests.test_grading import NAME, YES, items
from vinejax.grading import GraderPool, Verdict
from vinejax.tasks import Problem

ALL = "Find all solutions, separated by commas."


def test_one_hanging_answer_in_64_costs_its_own_verdict_and_one_limit(tmp_path):
    """Nothing is begun twice: the others wait for one limit at most, those of the other worker for
    none."""
    calls = tmp_path / "calls"
    responses = [f"answer{number}" for number in range(64)]
    responses[20] = "hang"
    with GraderPool(NAME, {"calls": str(calls)}, workers=2, limit=1.0) as graders:
        verdicts = graders.grade(items(*responses, "yes"))
    assert verdicts.pop() == YES
    assert verdicts.pop(20) == (0.0, "timeout")
    assert verdicts == [Verdict(0.0)] * 63
    assert sorted(calls.read_text().split()) == sorted([*responses, "yes"])


def slow_list(count: int) -> tuple[Problem, str]:
    """A list of formulas, and an answer whose first formula is compared with all of them."""
    gold, answer = (
        ", ".join(f"{letter}+{number}" for number in range(1, count + 1)) for letter in "xy"
    )
    problem = Problem(id="p", problem=ALL, solution=f"They are $\\boxed{{{gold}}}$.")
    return problem, f"They are $\\boxed{{{answer}}}$."


@pytest.mark.parametrize(
    ("seconds", "most"),
    [(float("inf"), 1), (0.25, 4)],  # 2 fit into the limit, or 3; the next one is cut off
)
def test_all_comparisons_of_an_answer_share_one_limit(seconds, most, tmp_path):
    calls = tmp_path / "calls"
    options = {"calls": str(calls), "seconds": seconds}
    path = "tests.tasks.faulty_math:Slow"
    with GraderPool(path, options, workers=1, limit=0.7) as graders:
        (verdict,) = graders.grade([slow_list(9)])
    assert verdict == (0.0, "timeout")
    begun = calls.read_text().splitlines()
    assert begun[0] == "y+1 = x+1"
    assert len(begun) <= most < 9


def test_a_list_within_the_limit_is_compared_whole(tmp_path):
    calls = tmp_path / "calls"
    options = {"calls": str(calls), "seconds": 0.0}
    with GraderPool("tests.tasks.faulty_math:Slow", options, workers=1) as graders:
        assert graders.grade([slow_list(3)]) == [Verdict(0.0)]
    # The first of the answer equals none of the list, which settles it.
    assert calls.read_text().splitlines() == ["y+1 = x+1", "y+1 = x+2", "y+1 = x+3"]


@pytest.mark.parametrize("name", configs.names())
def test_the_limit_is_15_seconds(name):
    assert configs.get(name).grading.limit == 15.0
