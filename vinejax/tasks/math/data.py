"""The problems of MATH (Hendrycks et al. 2021) and the 500 of them that are for testing."""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

from vinejax.config import UserError
from vinejax.tasks.base import Problem
from vinejax.tasks.rows import Row, hub_rows, local_rows

PARTS = {"train": 7_500, "test": 5_000}
ARCHIVE = sum(PARTS.values())
TEST = 500
VALIDATION = 500  # of the 12,000 that are left; 11,500 are for training
TEST_FILE = "math500.jsonl"
SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
_WHERE = (
    "put math_train.jsonl[.gz] and math_test.jsonl[.gz] (fields id, problem, solution; all 12,500 "
    f"problems) and {TEST_FILE} (the 500 of PRM800K) into a folder and set task.path to it"
)


def archive(path: str | None, hub: str | None) -> list[Problem]:
    """All problems of MATH, train part first; ids are the paths in the original archive.

    The hub's copies have lost the paths; there an id is part, subject and row.
    """
    if path is not None:
        rows = [row for part in PARTS for row in local_rows(Path(path), f"math_{part}.jsonl")]
        return _problems([(row.text("id"), row) for row in rows])
    _require("hub", hub)
    named = []
    for part in PARTS:
        for subject in SUBJECTS:
            rows = _from_hub(str(hub), subject, part, f"math_{part}.jsonl")
            named += [(f"{part}/{subject}/row{i}", row) for i, row in enumerate(rows)]
    return _problems(named)


def math500(path: str | None, hub: str | None) -> list[Problem]:
    """The test problems of "Let's Verify Step by Step" (PRM800K)."""
    if path is not None:
        return _problems([(row.text("id"), row) for row in local_rows(Path(path), TEST_FILE)])
    _require("hub_test", hub)
    rows = _from_hub(str(hub), "default", "test", TEST_FILE)
    return _problems([(row.text("unique_id"), row) for row in rows])


def resplit(problems: Sequence[Problem], test: Sequence[Problem]) -> list[Problem]:
    """The problems whose text is not among the test problems' (blanks aside): PRM800K's 12,000.

    Raises UserError if the two sets are whole and something else is left; of sets of other sizes,
    warns.
    """
    tested = {_blind(problem) for problem in test}
    left = [problem for problem in problems if _blind(problem) not in tested]
    if (len(problems), len(test)) != (ARCHIVE, TEST):
        warnings.warn(
            f"MATH has {len(problems)} problems and {len(test)} test problems here, the published "
            f"sets {ARCHIVE} and {TEST}: results don't compare with published ones",
            stacklevel=3,
        )
    elif len(left) != ARCHIVE - TEST:
        raise UserError(
            f"of MATH's {ARCHIVE} problems, {len(left)} are not among the {TEST} test problems; it "
            f"must be {ARCHIVE - TEST}: the sets don't belong together; {_WHERE}"
        )
    if not left:
        raise UserError(f"every problem of MATH is a test problem, none is left to train; {_WHERE}")
    return left


def held_out(problems: Sequence[Problem], seed: int) -> set[str]:
    """Ids of the validation problems: those with the smallest hashes of seed and text, so that the
    choice depends neither on the order nor on where the problems came from."""

    def draw(problem: Problem) -> bytes:
        return hashlib.sha256(f"{seed}\n{_blind(problem)}".encode()).digest()

    count = round(len(problems) * VALIDATION / (ARCHIVE - TEST))
    return {problem.id for problem in sorted(problems, key=draw)[:count]}


def _blind(problem: Problem) -> str:
    return " ".join(problem.problem.split())


def _require(option: str, hub: str | None) -> None:
    if hub is None:
        raise UserError(
            f"task.path and task.options.{option} are not set, so there are no MATH problems: "
            f"{_WHERE}, or name a copy on the hub"
        )


def _from_hub(name: str, configuration: str, part: str, file: str) -> list[Row]:
    try:
        return hub_rows(name, configuration, part, file)
    except UserError as error:
        raise UserError(f"{error}; for MATH: {_WHERE}") from error


def _problems(named: Sequence[tuple[str, Row]]) -> list[Problem]:
    problems, places = [], {}
    for name, row in named:
        problem, solution = row.text("problem"), row.text("solution")
        if not problem.strip() or not solution.strip():
            field = "solution" if problem.strip() else "problem"
            raise UserError(f"{row.where}: {field!r} is empty; correct or remove the line")
        if name in places:
            raise UserError(
                f"{row.where}: id {name!r} is that of {places[name]} too; remove one of the lines"
            )
        places[name] = row.where
        answer = _answer(solution, problem)
        problems.append(Problem(id=name, problem=problem, solution=solution, answer=answer))
    return problems


def _answer(solution: str, problem: str) -> str | None:
    """The gold answer as the graders read it; the data's own `answer` is not used, as by the
    authors."""
    from vinejax.tasks.math import extract

    return ", ".join(extract.answers(solution, problem)) or None
