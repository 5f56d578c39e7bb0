"""Traps of grading: workers that live on, threads, lenient equality, verdicts that change."""

import random
import threading
import time
from pathlib import Path

import pytest

from tests.test_grading import NAME, PROBLEM, YES, is_running, items
from vinejax import tasks
from vinejax.grading import GraderPool, Verdict
from vinejax.journal import Journal
from vinejax.tasks import Problem, Task

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

# gold, prediction; equal by MATH's authors, by the strict grader, by GSM8K's authors. The first is
# lenient in places and the second knows better; the third compares strings.
EQUALITY = [
    (r"\frac{1}{2}", "0.5", True, True, False),
    (r"\frac{1}{2}", r"\frac{2}{4}", True, True, False),
    ("50", "0.5", True, False, False),
    ("5", "500", True, False, False),
    ("3", "3.0005", True, False, False),
    ("0.333", "1/3", True, False, False),
    ("(1,2)", "[1,2]", True, False, False),
    (r"(-\infty,3]", r"(-\infty,3)", True, False, False),
    (r"\frac{\pi}{2}", "1.5708", True, False, False),
    (r"\{1,2\}", r"\{2,1\}", False, True, False),
    ("1,2", "2,1", False, True, False),
    ("1,000", "1000", True, True, False),  # GSM8K: commas stay in the gold
    ("1000", "1,000", True, True, True),
    ("1e3", "1000", True, False, False),
    ("12_{5}", "12", False, True, False),  # the base is dropped
    (r"90^\circ", "90", True, True, False),
    (r"\$5", "5", True, True, False),
    (r"7 \text{ cm}", "7", True, True, False),
    (r"50\%", "50", True, True, False),
    (r"50\%", "0.5", True, True, False),
]


def worker_ids(graders: GraderPool) -> set[int]:
    assert graders._pool is not None
    workers = graders._pool._pool_manager.worker_manager.workers.values()
    return {worker.pid for worker in workers if worker.pid is not None}


def assert_gone(workers: set[int]) -> None:
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline, "a grading worker lives on"
        time.sleep(0.05)


@needs_proc
def test_a_time_out_leaves_no_live_worker():
    with GraderPool(NAME, {}, workers=1, limit=0.2) as graders:
        graders._wall = 1.0
        assert graders.grade(items("yes")) == [YES]
        first = worker_ids(graders)
        assert graders.grade(items("hang in C"))[0].note == "timeout"
        assert_gone(first)  # no exception reaches into C code: the worker is ended
        assert graders.grade(items("yes")) == [YES]
        second = worker_ids(graders)
        assert second.isdisjoint(first)
        assert graders.grade(items("sleep"))[0].note == "timeout"
        assert_gone(second)
        assert graders.grade(items("swallow")) == [Verdict(0.0, "timeout")]
        third = worker_ids(graders)
    assert_gone(third)


@needs_proc
def test_an_answer_that_still_hangs_does_not_outlive_the_pool():
    with GraderPool(NAME, {}, workers=2, limit=1000.0) as graders:
        assert graders.grade(items("yes", "half")) == [YES, Verdict(0.5)]
        graders.submit(items("hang", "hang in C", "sleep"))
        workers = worker_ids(graders)
        assert all(is_running(pid) for pid in workers)
    assert_gone(workers)


def problem_of(gold: str) -> Problem:
    return Problem(id=gold, problem="Find it.", solution=f"So $\\boxed{{{gold}}}$.", answer=gold)


def verdicts(rows) -> list[tuple[bool, bool, bool]]:
    """By both graders of MATH and by GSM8K's, of (gold, prediction, ...)."""
    mathematics, gsm8k = tasks.get("math"), tasks.get("gsm8k")
    found = []
    for gold, prediction, *_ in rows:
        problem, boxed = problem_of(gold), f"So $\\boxed{{{prediction}}}$."
        grades = (
            mathematics.grade(problem, boxed),
            mathematics.grade_strict(problem, boxed),
            gsm8k.grade(problem, f"#### {prediction}"),
        )
        assert set(grades) <= {0.0, 1.0}
        found.append(tuple(grade == 1.0 for grade in grades))
    return found


EXPECTED = [row[2:] for row in EQUALITY]


def test_equality_of_each_grader():
    assert verdicts(EQUALITY) == EXPECTED


def test_graders_work_outside_the_main_thread():
    """Where signals, and with them the time limits of the libraries, are not to be had."""
    found = []
    thread = threading.Thread(target=lambda: found.append(verdicts(EQUALITY)))
    thread.start()
    thread.join()
    assert found == [EXPECTED]


def test_grades_depend_neither_on_the_order_nor_on_what_was_graded_before():
    order = list(range(len(EQUALITY)))
    for seed in range(3):
        random.Random(seed).shuffle(order)
        assert verdicts([EQUALITY[i] for i in order]) == [EXPECTED[i] for i in order]


@pytest.mark.parametrize("name", ["math", "gsm8k"])
def test_an_answer_that_is_missing_is_wrong(name):
    task = tasks.get(name)
    for response in ("", "\n", "I do not know.", "\\boxed{}", "####", "🙂", "\ud800"):
        for grade in (task.grade, task.grade_strict):
            assert grade(problem_of("7"), response) == 0.0


class Fickle(Task):
    """Another verdict each time."""

    name = "fickle"

    def __init__(self) -> None:
        self._grades = iter([1.0, 0.0, 0.5])

    def load(self, split):
        return [PROBLEM]

    def extract_answer(self, response):
        return response

    def grade(self, problem, response):
        return next(self._grades)


def fickle(journal: Journal) -> GraderPool:
    return GraderPool(f"{__name__}:Fickle", {}, workers=0, journal=journal)


def test_an_answer_has_one_verdict_in_all_phases_of_an_iteration(tmp_path):
    with Journal.open(tmp_path / "verdicts.jsonl") as journal, fickle(journal) as graders:
        assert graders.grade(items("a"), 1, "trajectories") == [YES]
        assert graders.grade(items("a"), 1, "values") == [YES]
        assert graders.grade(items("a"), 2, "trajectories") == [Verdict(0.0)]


def test_an_answer_that_is_submitted_twice_at_once_keeps_its_first_verdict(tmp_path):
    """As the waves of the value phase do; a resumed run finds only one verdict in the journal."""
    path = tmp_path / "verdicts.jsonl"
    with Journal.open(path) as journal, fickle(journal) as graders:
        waves = [graders.submit(items("a", text), 1, "values") for text in ("a", "b")]
        assert [wave.result() for wave in waves] == [[YES, YES], [YES, Verdict(0.5)]]
    with Journal.open(path) as journal, fickle(journal) as graders:
        assert graders.grade(items("a", "b"), 1, "values") == [YES, Verdict(0.5)]
