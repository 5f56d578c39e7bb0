"""MATH's data: the split of PRM800K, prompts, demonstrations, refusals. All texts are invented,
but for tests that read the real files."""

import json
import sys
import types
import warnings

import pytest

from tests.shared_data import REASON, shared_data
from vinejax import tasks
from vinejax.config import ConfigError, UserError
from vinejax.tasks import Problem
from vinejax.tasks.math import data

SPLITS = ("train", "validation", "test")


def row(number: int, part: str = "train", **fields) -> dict:
    return {
        "id": f"{part}/algebra/{number}.json",
        "problem": f"What is  {number} + 1?\n",
        "solution": f"It is $\\boxed{{{number + 1}}}$.",
        **fields,
    }


def write(folder, train: list, test: list, math500: list, **options):
    files = {"math_train.jsonl": train, "math_test.jsonl": test, "math500.jsonl": math500}
    for name, rows in files.items():
        lines = [item if isinstance(item, str) else json.dumps(item) for item in rows]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tasks.get("math", path=str(folder), **options)


def quiet(task, split):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return task.load(split)


@pytest.fixture
def task():
    return tasks.get("math")


@pytest.fixture
def small(tmp_path):
    """72 train and 60 test problems, 12 of which are for testing: 120 and 12."""
    test = [row(number, "test") for number in range(100, 160)]
    return write(tmp_path, [row(number) for number in range(72)], test, test[::5])


def test_problems_of_the_test_set_are_in_no_other_split(small):
    with pytest.warns(UserWarning, match="132 problems and 12 test problems here.*12500 and 500"):
        train = small.load("train")
    validation, test = quiet(small, "validation"), quiet(small, "test")
    assert (len(train), len(validation), len(test)) == (115, 5, 12)  # 120 * 500 / 12,000 = 5
    ids = [problem.id for part in (train, validation, test) for problem in part]
    assert len(set(ids)) == 132
    assert [problem.id for problem in test[:2]] == [
        "test/algebra/100.json",
        "test/algebra/105.json",
    ]
    assert ids[:115] == sorted(ids[:115], key=lambda name: int(name.split("/")[2].split(".")[0]))


def test_test_problems_are_recognised_by_text_not_by_id_or_blanks(tmp_path):
    rows = [row(number) for number in range(24)]
    tested = row(5, "elsewhere", problem="What is 5 + 1?")
    task = write(tmp_path, rows, [row(30, "test")], [tested])
    ids = {problem.id for split in ("train", "validation") for problem in quiet(task, split)}
    assert len(ids) == 24
    assert "train/algebra/5.json" not in ids


def test_validation_depends_on_the_seed_and_not_on_the_order(tmp_path, small):
    train = [row(number) for number in range(72)]
    test = [row(number, "test") for number in range(100, 160)]
    chosen = {problem.id for problem in quiet(small, "validation")}
    other = tmp_path / "other"
    other.mkdir()
    turned = write(other, train[::-1], test[::-1], test[::5])
    assert {problem.id for problem in quiet(turned, "validation")} == chosen
    seeded = tasks.get("math", path=str(tmp_path), split_seed=1)
    assert {problem.id for problem in quiet(seeded, "validation")} != chosen


def test_whole_sets_must_leave_12000(monkeypatch):
    def problems(numbers):
        return [Problem(id=str(n), problem=f"Q{n}", solution="") for n in numbers]

    archive = problems(range(data.ARCHIVE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(data.resplit(archive, problems(range(500)))) == 12_000
    with pytest.raises(UserError, match=r"12001 are not among the 500.*set task\.path"):
        data.resplit(archive, [*problems(range(499)), *problems([99_999])])


def test_prompt_is_that_of_gsm8k_and_the_problem_is_not_stripped(task):
    problem = Problem(id="x", problem=" Find $x$.\n", solution="It is $\\boxed{5}$.")
    assert task.prompt(problem) == "[MATH_TASK] Problem:\n Find $x$.\n\n\nSolution:"
    gsm8k = tasks.get("gsm8k")
    assert task.prompt(problem) == gsm8k.prompt(problem)
    assert task.stop == gsm8k.stop == ("\n\n\nProblem:",)
    assert task.finished("no box")


def test_demonstrations_end_with_a_newline_or_not(task):
    problem = Problem(id="x", problem="Q", solution="It is $\\boxed{5}$.")
    assert task.target(problem) == "\nIt is $\\boxed{5}$.\n"
    without = tasks.get("math", final_newline=False)
    assert without.target(problem) == "\nIt is $\\boxed{5}$."


def test_gold_answer_is_read_from_the_solution(tmp_path):
    answer = {"solution": "First \\boxed{3}, then \\boxed{4}.", "answer": "99"}
    task = write(tmp_path, [row(1)], [row(2, "test")], [row(3, "test", **answer)])
    assert quiet(task, "test")[0].answer == "3, 4"


def test_grades(task):
    problem = Problem(id="x", problem="Q", solution="It is $\\boxed{\\frac{1}{2}}$.")
    for grade in (task.grade, task.grade_strict):
        assert grade(problem, "\nSo $\\boxed{\\frac12}$.\n") == 1.0
        assert grade(problem, "\nSo $\\boxed{3}$.\n") == 0.0
        assert grade(problem, "") == 0.0
    assert task.extract_answer("\nSo $\\boxed{\\frac12}$.\n") == "\\frac{1}{2}"
    assert task.extract_answer("nothing") is None


def test_bad_options_are_refused(task):
    with pytest.raises(ConfigError, match=r"task\.steps='lines'"):
        tasks.get("math", steps="lines")
    with pytest.raises(ConfigError, match="no split"):
        task.load("dev")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", r"math500\.jsonl:2.*broken line"),
        ({"id": "a", "problem": "Q"}, r"math500\.jsonl:2.*'solution' is missing"),
        ({"problem": "Q", "solution": "S"}, r"math500\.jsonl:2.*'id' is missing"),
        (row(3, problem=" "), r"math500\.jsonl:2.*'problem' is empty"),
        (row(3, solution=""), r"math500\.jsonl:2.*'solution' is empty"),
        (row(1), r"math500\.jsonl:2.*id 'train/algebra/1\.json' is that of .*math500\.jsonl:1"),
    ],
)
def test_broken_lines_are_named(tmp_path, line, message):
    task = write(tmp_path, [row(1)], [row(2)], [row(1), line])
    with pytest.raises(UserError, match=message):
        task.load("test")


def test_missing_data_says_where_to_put_it(tmp_path, task):
    for split in SPLITS:
        with pytest.raises(UserError, match=r"math_train\.jsonl.*math500\.jsonl.*set task\.path"):
            task.load(split)
    with pytest.raises(UserError, match=r"task\.options\.hub are not set"):
        data.archive(None, None)
    local = write(tmp_path, [row(1)], [row(2)], [row(3)])
    (tmp_path / "math_test.jsonl").unlink()
    with pytest.raises(UserError, match=r"math_test\.jsonl nor math_test\.jsonl\.gz"):
        local.load("train")
    same = write(tmp_path, [row(1)], [row(1, "test")], [row(1)])
    with pytest.raises(UserError, match="none is left"):
        quiet(same, "train")


def test_data_comes_from_the_hub_only_if_both_sets_are_named(monkeypatch):
    module = types.ModuleType("datasets")
    asked = []

    def load_dataset(name, configuration, split):
        asked.append((name, configuration, split))
        if name == "copy/of-500":
            return [row(0, problem="Q train algebra 0", unique_id="test/algebra/7.json")]
        texts = [f"Q {split} {configuration} {number}" for number in range(4)]
        return [{"problem": text, "solution": "\\boxed{5}"} for text in texts]

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    task = tasks.get("math", hub="copy/of-math", hub_test="copy/of-500")
    train, validation, test = (quiet(task, split) for split in SPLITS)
    assert (len(train), len(validation)) == (53, 2)  # 7 subjects * 2 parts * 4 - 1 = 55
    assert test[0].id == "test/algebra/7.json"
    ids = {problem.id for problem in (*train, *validation)}
    assert "test/precalculus/row3" in ids
    assert "train/algebra/row0" not in ids
    assert ("copy/of-500", "default", "test") in asked
    assert ("copy/of-math", "geometry", "train") in asked
    with pytest.raises(UserError, match="hub_test are not set"):
        tasks.get("math", hub="copy/of-math").load("test")

    def fails(*_, **__):
        raise ConnectionError("offline")

    module.load_dataset = fails
    with pytest.raises(UserError, match=r"could not be fetched.*for MATH: put math_train"):
        task.load("train")


@pytest.fixture(scope="module")
def full():
    folder = shared_data()
    if folder is None or not (folder / "math500.jsonl").is_file():
        pytest.skip(REASON)
    task = tasks.get("math", path=str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return task, {split: task.load(split) for split in SPLITS}


def test_full_splits_have_the_sizes_of_the_paper_and_share_no_problem(full):
    _, splits = full
    assert [len(splits[split]) for split in SPLITS] == [11_500, 500, 500]
    problems = [problem for split in SPLITS for problem in splits[split]]
    assert len({problem.id for problem in problems}) == 12_500
    assert len({problem.problem for problem in problems}) == 12_500
    normalised = {
        split: {"".join(problem.problem.lower().split()) for problem in part}
        for split, part in splits.items()
    }
    assert not normalised["test"] & (normalised["train"] | normalised["validation"])
    assert not normalised["validation"] & normalised["train"]


def test_full_ids_are_archive_paths_and_nearly_all_have_an_answer(full):
    _, splits = full
    problems = [problem for split in SPLITS for problem in splits[split]]
    assert all(problem.id.startswith(("train/", "test/")) for problem in problems)
    assert splits["test"][0].id.startswith("test/")
    assert sum(problem.answer is None for problem in problems) < 10  # no brace, or an empty box
