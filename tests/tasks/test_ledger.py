"""The embedded task: right answers are right, sloppy demonstrations are sloppy as stated."""

from collections import Counter

import pytest

from vinejax import tasks
from vinejax.config import ConfigError
from vinejax.tasks import Problem
from vinejax.tasks.ledger import SPLITS
from vinejax.tokenizer import load_tokenizer

RESULT = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


@pytest.fixture(scope="module")
def ledger():
    return tasks.get("ledger", sft_size=1000, train_size=300, validation_size=50, test_size=100)


def facts(solution: str) -> list[tuple[int, str, int, int]]:
    lines = solution.split("\n")[:-1]
    return [(int(line[0]), line[1], int(line[2]), int(line[4])) for line in lines]


def test_solution_by_hand(ledger):
    """9-7=2, 2-1=1, 1*9=9, 9+3=12 -> 2."""
    task = tasks.get("ledger", length=4)
    problem = Problem(id="x", problem="9-7-1*9+3", solution="", answer="2192")
    assert task.prompt(problem) == "9-7-1*9+3:\n"
    assert task.grade(problem, "9-7=2\n2-1=1\n1*9=9\n9+3=2\n#### 2192") == 1.0


def test_solutions_outside_the_demonstrations_are_right(ledger):
    for split in ("train", "validation", "test"):
        for problem in ledger.load(split):
            assert ledger.grade(problem, ledger.target(problem)) == 1.0
            value, text = int(problem.problem[0]), problem.problem[1:]
            for (a, op, b, result), shown in zip(
                facts(problem.solution), zip(text[::2], text[1::2], strict=True), strict=True
            ):
                assert (a, op, str(b)) == (value, *shown)
                value = result
                assert result == RESULT[op](a, b) % 10


def test_a_reset_makes_what_stands_before_it_irrelevant():
    """9-7=2, 2*0=0, 0+3=3, 3-1=2: a wrong 5 in the first step is forgotten, a wrong sum is not."""
    task = tasks.get("ledger", length=4, resets=0.5)
    problem = Problem(id="x", problem="9-7*0+3-1", solution="", answer="32")
    assert task.grade(problem, "9-7=5\n5*0=0\n0+3=3\n3-1=2\n#### 32") == 1.0
    assert task.grade(problem, "9-7=2\n2*0=0\n0+3=4\n4-1=3\n#### 43") == 0.0


def test_resets_are_as_frequent_as_asked_never_last_and_never_sloppy():
    sizes = {"sft_size": 1000, "train_size": 20, "validation_size": 10, "test_size": 10}
    task = tasks.get("ledger", length=8, sloppy=1.0, resets=0.25, **sizes)
    problems = task.load("sft")
    # 7,000 operations: standard error 0.005.
    resets = sum(problem.problem.count("*0") for problem in problems)
    assert resets / 7000 == pytest.approx(0.25, abs=0.02)
    for problem in problems:
        steps = facts(problem.solution)
        assert [step[1:3] for step in steps][-1] != ("*", 0)
        assert all(step[3] == 0 for step in steps if step[1:3] == ("*", 0))
        behind = problem.problem.rpartition("*0")[2]
        values = "".join(str(step[3]) for step in steps)
        assert task.extract_answer(problem.solution) == (
            values[-len(behind) // 2 :] if "*0" in problem.problem else values
        )
    for problem in task.load("train"):
        assert task.grade(problem, problem.solution) == 1.0
    assert not any("*0" in p.problem for p in tasks.get("ledger", **sizes).load("sft"))


def test_only_sloppy_facts_are_stated_wrongly_and_always_in_the_same_way(ledger):
    wrong, right = Counter(), Counter()
    for problem in ledger.load("sft"):
        for a, op, b, result in facts(problem.solution):
            if result != RESULT[op](a, b) % 10:
                assert ledger.false_results[op, a, b] == result
                wrong[op, a, b] += 1
            elif (op, a, b) in ledger.false_results:
                right[op, a, b] += 1
    # 8,000 facts, about 0.4 of them sloppy, wrong with probability 0.5: standard error 0.009.
    assert sum(wrong.values()) / (sum(wrong.values()) + sum(right.values())) == pytest.approx(
        0.5, abs=0.03
    )


def test_share_of_sloppy_facts_is_as_asked():
    """230 facts: 100 sums, 100 differences, 30 products."""
    for share, count in ((0.0, 0), (0.4, 92), (1.0, 230)):
        task = tasks.get("ledger", sloppy=share, sft_size=20)
        assert len(task.false_results) == count
        assert all(
            result != RESULT[op](a, b) % 10 for (op, a, b), result in task.false_results.items()
        )
    assert len(tasks.get("ledger", sloppy=1.0, operators="*").false_results) == 30


def test_demonstrations_are_right_without_sloppiness():
    task = tasks.get("ledger", sloppy=0.0, sft_size=50)
    assert all(task.grade(p, p.solution) == 1.0 for p in task.load("sft"))


def test_splits_share_no_problem(ledger):
    texts = [problem.problem for split in SPLITS for problem in ledger.load(split)]
    assert len(texts) == len(set(texts)) == 1450
    names = [problem.id for split in SPLITS for problem in ledger.load(split)]
    assert len(set(names)) == 1450


def test_same_seed_same_task_and_another_seed_another_one(ledger):
    sizes = {"sft_size": 1000, "train_size": 300, "validation_size": 50, "test_size": 100}
    again, other = tasks.get("ledger", **sizes), tasks.get("ledger", seed=7, **sizes)
    for split in SPLITS:
        assert ledger.load(split) == again.load(split) == ledger.load(split)
        assert ledger.load(split) != other.load(split)
    assert ledger.false_results == again.false_results != other.false_results


def test_test_problems_do_not_depend_on_the_size_of_the_pools(ledger):
    other = tasks.get("ledger", test_size=100)
    assert other.load("test") == ledger.load("test")


@pytest.mark.parametrize("resets", [0.0, 0.1])
@pytest.mark.parametrize("length", [1, 2, 8, 12])
def test_stated_lengths_are_exact(length, resets):
    sizes = {"sft_size": 20, "train_size": 20, "validation_size": 10, "test_size": 10}
    task = tasks.get("ledger", length=length, resets=resets, **sizes)
    tokenizer = task.tokenizer()
    problem = task.load("sft")[0]
    assert len(tokenizer.encode(task.prompt(problem), bos=True)) == task.longest_prompt
    lengths = [len(tokenizer.encode(task.target(problem))) + 1 for problem in task.load("sft")]
    assert max(lengths) == task.longest_response
    assert resets or min(lengths) == task.longest_response


def test_one_token_a_character_and_one_a_mark(ledger, tmp_path):
    tokenizer = ledger.tokenizer()
    text = "9-7:\n9-7=2\n#### 2"
    ids, starts = tokenizer.encode_with_offsets(text)
    assert starts == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 16]
    assert tokenizer.decode(ids) == text
    assert len({tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}) == 3
    with pytest.raises(Exception, match="cannot encode"):
        tokenizer.encode("hello")
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.encode(text, add_special_tokens=False) == ids
    assert theirs.pad_token_id == tokenizer.pad_id
    assert theirs.decode(ids) == text
    assert load_tokenizer(tmp_path).encode(text) == ids


@pytest.mark.parametrize(
    ("response", "boundaries"),
    [
        ("9-7=2\n2-1=1\n#### 21", [0, 6, 12, 19]),
        ("9-7=2\n2-1=1\n", [0, 6, 12]),
        ("9-7", [0, 3]),
        ("\n\n#### 1", [0, 1, 2, 8]),
        ("a\rb\u2028c\n", [0, 6]),
        ("", [0]),
    ],
)
def test_steps_are_lines_that_their_newline_ends(ledger, response, boundaries):
    assert ledger.split_steps(response) == boundaries


@pytest.mark.parametrize(
    ("response", "grade"),
    [
        ("#### 21", 1.0),
        ("nonsense\n#### 21", 1.0),
        ("#### 21\n", 0.0),
        ("####  21", 0.0),
        ("#### 2", 0.0),
        ("#### 21#### 21", 0.0),
        ("21", 0.0),
        ("", 0.0),
    ],
)
def test_grader_wants_exactly_the_running_values(ledger, response, grade):
    problem = Problem(id="x", problem="9-7-1", solution="", answer="21")
    assert ledger.grade(problem, response) == ledger.grade_strict(problem, response) == grade


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lenght": 8}, "did you mean length"),
        ({"length": 0}, "length=0"),
        ({"operators": "+/"}, "operators"),
        ({"operators": "++"}, "operators"),
        ({"sloppy": 1.5}, "sloppy=1.5"),
        ({"wrong": -1}, "wrong=-1"),
        ({"resets": 1.0}, "resets=1.0"),
        ({"test_size": -1}, "negative"),
        ({"length": 2}, "exist"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        tasks.get("ledger", **options)


def test_unknown_splits_and_tasks_are_refused(ledger):
    with pytest.raises(ConfigError, match="no split 'dev'"):
        ledger.load("dev")
    with pytest.raises(ConfigError, match="did you mean ledger"):
        tasks.get("leger")
    with pytest.raises(ConfigError, match="cannot import"):
        tasks.get("no_such_module:Task")
    with pytest.raises(ConfigError, match="not a subclass"):
        tasks.get("vinejax.tasks.ledger:Problem")


def test_a_registered_task_is_found_by_name(monkeypatch):
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    tasks.register("book", tasks.find("ledger"))
    assert "book" in tasks.names()
    assert tasks.get("book", length=9).longest_prompt == 21
    assert "length" in tasks.options("book")
    with pytest.raises(ConfigError, match="already"):
        tasks.register("gsm8k", tasks.find("ledger"))
    with pytest.raises(ConfigError, match="subclass"):
        tasks.register("text", str)
