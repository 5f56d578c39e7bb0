"""Measure grading: verdicts a second and core of MATH's graders, on responses that have a verdict.

python -m benchmarks.grading --responses=DATA/oracles/math_grades.jsonl.gz [--repeat=3] [--json]

Each line of the file has a problem, a solution, a response and the authors' verdict (`correct`).
Nothing is remembered from one pass to the next: texts and values of formulas are cached within a
pass only, as they are in a grading worker, and no verdict ever is. Time is CPU time of one process.
"""

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from sympy.core import cache

from vinejax import tasks
from vinejax.tasks import Problem
from vinejax.tasks.math import strict, symbolic

Row = dict[str, Any]


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    responses: Path  # JSON lines, gzipped: problem, solution, response, correct.
    repeat: int = 3  # Passes; the fastest counts.
    json: bool = False  # Print the result as one JSON line.


def forget() -> None:
    """Empties the caches of formulas, sympy's included."""
    for function in (symbolic._text, symbolic._value, strict._parsed):
        function.cache_clear()
    cache.clear_cache()


def measure(grade: Callable[[Problem, str], float], rows: list[Row], repeat: int) -> dict[str, Any]:
    """Verdicts a second, and the share that agrees with the authors' verdicts."""
    problems = [Problem(id="", problem=r["problem"], solution=r["solution"]) for r in rows]
    # The first pass imports; a worker does that once.
    grades = [grade(problem, row["response"]) for problem, row in zip(problems, rows, strict=True)]
    seconds = []
    for _ in range(repeat):
        forget()
        started = time.process_time()
        for problem, row in zip(problems, rows, strict=True):
            grade(problem, row["response"])
        seconds.append(time.process_time() - started)
    agree = sum(given == float(r["correct"]) for given, r in zip(grades, rows, strict=True))
    return {"per_second": len(rows) / min(seconds), "agreement": agree / len(rows)}


def main() -> None:
    """Prints a row a grader."""
    flags = tyro.cli(Flags)
    with gzip.open(flags.responses, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    task = tasks.get("math")
    result = {
        "responses": len(rows),
        "authors": measure(task.grade, rows, flags.repeat),
        "strict": measure(task.grade_strict, rows, flags.repeat),
    }
    if flags.json:
        print(json.dumps(result))
        return
    print(f"{len(rows)} responses")
    for name in ("authors", "strict"):
        numbers = result[name]
        print(
            f"{name:8} {numbers['per_second']:8.0f} verdicts/s per core, "
            f"{numbers['agreement']:.1%} as the authors'"
        )


if __name__ == "__main__":
    main()
