"""A task of your own in one file: your JSON lines, your fields, your grader.

    PYTHONPATH=. python -m experiments.run --config=tiny --config.task.name=examples.own_task:Sums

With --config.task.path=DIR the rows are those of DIR/train.jsonl, validation.jsonl and test.jsonl;
without it there are made ones of the same form, whose work has slips in it:

    {"ask": "3+8+2", "work": "3+8=11\\n11+2=13", "result": "13"}

On these pass@1 was 28 % after SFT and 74 % after 50 iterations of VinePPO (seed 0, two minutes on
two CPU cores). vinejax/tasks/base.py has what else a task may decide: stop strings, steps, ...
Grading workers import this file, so it must not import JAX.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from vinejax.tasks import Problem, Task
from vinejax.tasks.rows import Row, local_rows
from vinejax.tokenizer import Tokenizer, byte_tokenizer

MADE = {"train": range(3000), "validation": range(3000, 3128), "test": range(3128, 3384)}


class Sums(Task):
    """Numbers are added up from left to right; a step is a line, as in every task by default."""

    name = "sums"

    def __init__(self, path: str | None = None):
        self.path = path

    def load(self, split: str) -> Sequence[Problem]:
        """A field that is missing, or no text, is an error that names file and line."""
        path = self.path
        rows = made(split) if path is None else local_rows(Path(path), f"{split}.jsonl")
        fields = [[row.text(name) for name in ("ask", "work", "result")] for row in rows]
        return [
            Problem(id=f"{split}/{i}", problem=ask, solution=work, answer=result)
            for i, (ask, work, result) in enumerate(fields)
        ]

    def prompt(self, problem: Problem) -> str:
        return f"{problem.problem}: "

    def extract_answer(self, response: str) -> str | None:
        """What stands behind the last "="."""
        return response.rpartition("=")[2].strip() if "=" in response else None

    def grade(self, problem: Problem, response: str) -> float:
        """1 for the right number, however it is written (13 or 13.0)."""
        try:
            return float(float(self.extract_answer(response) or "") == float(problem.answer or ""))
        except ValueError:
            return 0.0

    def tokenizer(self) -> Tokenizer:
        """For a model from scratch; one from disk brings its own."""
        return byte_tokenizer()


def made(split: str) -> list[Row]:
    """Five digits each, none in two splits. A quarter of the lines is one too high."""
    draw, rows = random.Random(0), []
    numbers = draw.sample(range(10**5), sum(map(len, MADE.values())))
    for digits in (f"{numbers[i]:05}" for i in MADE[split]):
        total, lines = int(digits[0]), []
        for digit in digits[1:]:
            fact, total = f"{total}+{digit}=", total + int(digit) + (draw.random() < 0.25)
            lines.append(f"{fact}{total}")
        result = str(sum(map(int, digits)))
        fields = {"ask": "+".join(digits), "work": "\n".join(lines), "result": result}
        rows.append(Row(f"made/{split}", fields))
    return rows
