"""A held-out problem that is trained on is noticed."""

import pytest

from experiments.configs import tiny
from vinejax.tasks import Problem, get
from vinejax.tasks.overlap import shared


def problems(*texts: str) -> list[Problem]:
    return [Problem(id=f"p{i}", problem=text, solution="") for i, text in enumerate(texts)]


def test_blanks_and_case_do_not_hide_a_problem():
    train = problems("What is  1+1?\r\n", "Find $x$.")
    assert shared(train, problems("what is 1+1?", "Find $y$.")) == problems("what is 1+1?")


def test_nothing_is_shared_by_different_problems():
    assert shared(problems("a", "b"), problems("c", "ab", "")) == []


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_embedded_task_trains_on_none_that_it_holds_out(split: str):
    config = tiny.config()
    task = get("ledger", **config.task.arguments())
    held_out = task.load(split)
    assert shared(task.load("train"), held_out) == []
    assert shared(task.load("sft"), held_out) == []
