"""GSM8K as the authors' code has it; the tables are what their functions give (commit efe7228)."""

import gzip
import itertools
import json
import random
import re
import sys
import types

import pytest

from tests.shared_data import REASON, shared_data
from vinejax import tasks
from vinejax.config import ConfigError, UserError
from vinejax.tasks import Problem
from vinejax.tasks.gsm8k import count_gold_commas

STEPS = [
    (
        "\nTom has 3 cats.\nHe buys 2 more.\n#### 5\n",
        ["\nTom has 3 cats.", "\nHe buys 2 more.\n#### 5\n"],
    ),
    ("\n\nTom has 3.\n\nThen 2.\n\n#### 5", ["\n\nTom has 3.", "\n", "\nThen 2.\n\n#### 5"]),
    ("\n#### 5", ["\n#### 5"]),
    ("#### 5", ["#### 5"]),
    ("\nTom has 5\n\n", ["\nTom has 5", "\n", "\n"]),
    ("\nA\n####5\n", ["\nA", "\n####5", "\n"]),
    ("", []),
    # Two answers: the authors' function fails, here the response is one step.
    ("\nA\n#### 5\n#### 5\n", ["\nA\n#### 5\n#### 5\n"]),
    # From the section on tokens: the only line that is not blank merges with the answer.
    ("\nA cat.\n#### 5\n", ["\nA cat.\n#### 5\n"]),
    ("\nA cat.\nTwo.\n#### 5\n", ["\nA cat.", "\nTwo.\n#### 5\n"]),
    ("\n \n#### 5", ["\n \n#### 5"]),
    ("A\n \n\n#### 5", ["A\n \n\n#### 5"]),
    ("\n\n", ["\n", "\n"]),
    (" ", [" "]),
]

GRADES = [
    ("\n#### 18\n", "18", True),
    ("#### 1,234", "1234", True),
    ("#### 1234", "1,234", False),
    ("#### 1,234", "1,234", False),
    ("#### 18.0", "18", False),
    ("#### $18", "18", False),
    ("#### 18 dollars", "18", False),
    ("#### 18.", "18", False),
    ("18", "18", False),
    ("#### 5\n#### 18", "18", True),
    ("#### 18\n#### 5", "18", False),
    ("#### 18\nextra", "18", False),
    ("####18", "18", True),
    ("####     18   ", "18", True),
    ("#### -3", "-3", True),
    ("#### +3", "3", False),
    ("#### 3/4", "0.75", False),
    ("#### ABC", "abc", True),
    ("#### 70%", "70", False),
    ("####", "5", False),
    ("#### 007", "7", False),
    ("The answer is \\boxed{18}", "18", False),
    ("#### 1 8", "18", False),
    ("##### 18", "18", False),
]


def problem(answer: str) -> Problem:
    return Problem(id="x", problem="Q?", solution="", answer=answer)


def write(folder, train: list, test: list | None = None):
    for name, rows in (("train", train), ("test", test if test is not None else train)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"gsm8k_{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tasks.get("gsm8k", path=str(folder))


def row(answer: str = "#### 7", question: str = "Q?") -> dict:
    return {"question": question, "answer": answer}


def quiet(task, split):
    with pytest.warns(UserWarning, match="don't compare"):
        return task.load(split)


@pytest.fixture
def task():
    return tasks.get("gsm8k")


@pytest.mark.parametrize(("response", "steps"), STEPS)
def test_steps(task, response, steps):
    boundaries = task.split_steps(response)
    pairs = itertools.pairwise(boundaries)
    assert [response[begin:end] for begin, end in pairs] == steps
    assert boundaries[0] == 0
    assert boundaries[-1] == len(response)


def test_splitter_failures_are_counted(task):
    task.split_steps("\nA\n#### 5")
    assert task.step_failures == 0
    task.split_steps("\nA\n#### 5\n#### 5")
    task.split_steps("\n#### 5\n#### 5\n#### 5")
    assert task.step_failures == 2
    assert tasks.get("gsm8k").step_failures == 0


def test_steps_of_any_text_join_to_the_text(task):
    draw = random.Random(0)
    for _ in range(2000):
        parts = [draw.choice(["\n", " ", "a", "\n#### ", "#### ", "5", "\r"]) for _ in range(9)]
        response = "".join(parts[: draw.randint(0, 9)])
        boundaries = task.split_steps(response)
        assert boundaries == sorted(set(boundaries))
        assert (boundaries[0], boundaries[-1]) == (0, len(response))


@pytest.mark.parametrize(("response", "gold", "is_correct"), GRADES)
def test_grades(task, response, gold, is_correct):
    assert task.grade(problem(gold), response) == float(is_correct)


def test_clean_gold_commas_make_such_problems_solvable():
    clean = tasks.get("gsm8k", gold_commas="clean")
    assert clean.grade(problem("1,234"), "#### 1,234") == 1.0
    assert clean.grade(problem("1,234"), "#### 1234") == 1.0
    assert count_gold_commas([problem("1,234"), problem("1234")]) == 1


@pytest.mark.parametrize(
    ("response", "gold", "grade"),
    [
        ("#### 18", "18", 1.0),
        ("#### 18.0", "18", 1.0),
        ("#### $1,234.", "1,234", 1.0),
        ("#### +3", "3", 1.0),
        ("#### 3/4", "0.75", 1.0),
        ("#### 007", "7", 1.0),
        ("#### 1/0", "1", 0.0),
        ("#### 18 dollars", "18", 0.0),
        ("#### ", "18", 0.0),
        ("18", "18", 0.0),
        ("#### \u0661", "1", 0.0),
        ("#### " + "9" * 5000, "9", 0.0),
        ("#### __import__('os')", "1", 0.0),
    ],
)
def test_strict_grades_compare_numbers(task, response, gold, grade):
    assert task.grade_strict(problem(gold), response) == grade


def test_prompt_target_and_stop(tmp_path):
    """The worked example of the reference: outer blanks stripped, calculator marks removed."""
    answer = "He has 3*2=<<3*2=6>>6 cats.\nThen <<6+1=7>>7 dogs.\n#### 7"
    task = write(tmp_path, [row(answer, " Q? ")])
    item = quiet(task, "test")[0]
    assert (item.problem, item.answer) == ("Q?", "7")
    assert item.solution == "He has 3*2=6 cats.\nThen 7 dogs.\n#### 7"
    assert task.prompt(item) == "[MATH_TASK] Problem:\nQ?\n\nSolution:"
    assert task.target(item) == "\nHe has 3*2=6 cats.\nThen 7 dogs.\n#### 7\n"
    assert task.stop == ("\n\n\nProblem:",)


def test_calculator_marks_may_span_lines(tmp_path):
    task = write(tmp_path, [row("a <<1\n+2>>3 b <<4>>4\n#### 4")])
    assert quiet(task, "test")[0].solution == "a 3 b 4\n#### 4"


def test_response_without_a_mark_is_unfinished(task):
    assert not task.finished("\nIt is 5.\n")
    assert task.finished("\n####5")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", r"gsm8k_test\.jsonl:2.*broken line"),
        ('["a"]', r"gsm8k_test\.jsonl:2.*not a JSON object"),
        ({"question": "Q?"}, r"gsm8k_test\.jsonl:2.*'answer' is missing"),
        ({"question": 5, "answer": "#### 1"}, r"gsm8k_test\.jsonl:2.*'question' is 5"),
        (row("no mark"), r"gsm8k_test\.jsonl:2.*no gold answer.*0 times"),
        (row("#### 1\n#### 2"), r"gsm8k_test\.jsonl:2.*2 times"),
        (row("steps\n####  "), r"gsm8k_test\.jsonl:2.*empty"),
        (row("#### 1", "  "), r"gsm8k_test\.jsonl:2.*'question' is empty"),
    ],
)
def test_broken_lines_are_named(tmp_path, line, message):
    task = write(tmp_path, [row()], [row(), line, row()])
    with pytest.raises(UserError, match=message) as caught:
        task.load("test")
    assert "correct or remove the line" in str(caught.value)


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        tasks.get("gsm8k", path=str(tmp_path / "nowhere")).load("test")
    task = tasks.get("gsm8k", path=str(tmp_path))
    with pytest.raises(UserError, match=r"gsm8k_test\.jsonl nor gsm8k_test\.jsonl\.gz"):
        task.load("test")
    (tmp_path / "gsm8k_test.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(UserError, match="cannot be read"):
        task.load("test")
    (tmp_path / "gsm8k_test.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match="no problem"):
        task.load("test")


def test_bad_options_are_refused(task):
    with pytest.raises(ConfigError, match=r"task\.steps='paper'"):
        tasks.get("gsm8k", steps="paper")
    with pytest.raises(ConfigError, match="gold_commas"):
        tasks.get("gsm8k", gold_commas="maybe")
    with pytest.raises(ConfigError, match="no split"):
        task.load("dev")


def test_small_files_are_split_in_the_published_proportion(tmp_path):
    rows = [row(question=f"Question\u2028{number}?") for number in range(100)]
    task = write(tmp_path, rows)
    train, validation = quiet(task, "train"), quiet(task, "validation")
    assert (len(train), len(validation)) == (95, 5)  # 100 * 373 / 7473 = 4.99
    assert len({p.problem for p in train} | {p.problem for p in validation}) == 100
    other = tasks.get("gsm8k", path=str(tmp_path), split_seed=1)
    assert quiet(other, "validation") != validation == quiet(task, "validation")


def test_data_comes_from_the_hub_without_a_path(monkeypatch):
    module = types.ModuleType("datasets")
    asked = []

    def load_dataset(name, configuration, split):
        asked.append((name, configuration, split))
        return [row()] * 20

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert len(quiet(tasks.get("gsm8k", hub="someone/else"), "test")) == 20
    assert asked == [("someone/else", "main", "test")]

    def fails(*_, **__):
        raise ConnectionError("offline")

    module.load_dataset = fails
    with pytest.raises(UserError, match=r"gsm8k_train\.jsonl into a folder and set task\.path"):
        tasks.get("gsm8k").load("train")


@pytest.fixture(scope="module")
def full():
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    task = tasks.get("gsm8k", path=str(data))
    return task, {split: task.load(split) for split in ("train", "validation", "test")}


def test_full_splits_have_the_sizes_of_the_paper_and_share_no_problem(full):
    _, splits = full
    assert {name: len(part) for name, part in splits.items()} == {
        "train": 7100,
        "validation": 373,
        "test": 1319,
    }
    texts = {
        name: {" ".join(re.findall(r"\w+", p.problem.lower())) for p in part}
        for name, part in splits.items()
    }
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    assert not texts["train"] & texts["validation"]


def test_full_gold_solutions_are_right_but_for_the_commas_that_the_authors_keep(full):
    task, splits = full
    clean = tasks.get("gsm8k", gold_commas="clean")
    problems = [p for part in splits.values() for p in part]
    commas = count_gold_commas(problems)
    assert commas == 93
    assert sum(task.grade(p, task.target(p)) for p in problems) == len(problems) - commas
    assert all(clean.grade(p, task.target(p)) == 1.0 for p in problems)
    assert all(task.grade_strict(p, task.target(p)) == 1.0 for p in problems)
    assert all(task.grade(p, "") == 0.0 for p in problems)
    assert not any("<<" in p.solution for p in problems)
    assert task.step_failures == 0


def test_full_gold_solutions_split_into_their_lines(full):
    task, splits = full
    for item in splits["test"]:
        response = task.target(item)
        lines = [line for line in item.solution.partition("\n####")[0].split("\n") if line.strip()]
        blank = item.solution.count("\n\n")
        assert len(task.split_steps(response)) - 1 <= len(lines) + blank
        assert len(task.split_steps(response)) - 1 >= len(lines)
    assert task.step_failures == 0
