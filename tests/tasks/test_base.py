"""A task in one file: the example of the documentation works, with every default."""

import re
import sys
import textwrap
import types

import pytest

from vinejax import tasks
from vinejax.grading import GraderPool
from vinejax.tasks import base


@pytest.fixture
def doubling(monkeypatch):
    source = re.search(r"\n\n(    from vinejax.*?)\n\nIt is then", base.__doc__, re.DOTALL)[1]
    module = types.ModuleType("doubling_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(textwrap.dedent(source), module.__dict__)
    return module


def test_documented_example_is_a_whole_task(doubling):
    task = tasks.get("doubling_example:Doubling", largest=50)
    problem = task.load("test")[0]
    assert task.prompt(problem) == "2*2="
    assert task.target(problem) == "2+2\n4"
    assert task.split_steps("2+2\n4") == [0, 4, 5]
    assert task.extract_answer("2+2\n4") == "4"
    assert task.grade(problem, "2+2\n4") == task.grade_strict(problem, "4") == 1.0
    assert task.grade(problem, "2+2\n5") == task.grade(problem, "") == 0.0
    assert task.finished("anything")
    assert task.tokenizer() is None
    assert task.sft_split == "train"
    with GraderPool("doubling_example:Doubling", {"largest": 50}, 0) as graders:
        assert graders.grade([(problem, "2+2\n4")])[0].grade == 1.0


def test_problems_are_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        tasks.Problem("x", "problem", "solution")
    problem = tasks.Problem(id="x", problem="p", solution="s")
    assert (problem.answer, problem.meta) == (None, {})
    with pytest.raises(AttributeError):
        problem.answer = "5"


def test_a_task_without_its_two_methods_cannot_be_made():
    class Half(tasks.Task):
        def load(self, split):
            return []

    with pytest.raises(TypeError, match="extract_answer"):
        Half()
