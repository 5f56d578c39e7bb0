"""GSM8K (Cobbe et al. 2021), as VinePPO's authors use it: `src/treetune/tasks/gsm8k.py` in their
repository, commit efe7228, with `use_original_format` and `remove_calculator_expressions`.

A solution is one step a line, then `#### ` and the answer.
"""

import re
import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from vinejax.config import ConfigError, UserError
from vinejax.tasks import prompts
from vinejax.tasks.base import Problem, Task
from vinejax.tasks.rows import Row, hub_rows, local_rows

MARK = "####"
ANSWER_PREFIX = "\n#### "  # the step rule wants newline and space; the grader does not
PUBLISHED = {"train": 7473, "test": 1319}
VALIDATION = 373  # of the published train part; 7,100 are left
CALCULATOR = re.compile(r"<<.*?>>", re.DOTALL)
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:/[0-9]+)?")


class GSM8K(Task):
    """path: a folder with gsm8k_{train,test}.jsonl[.gz] (fields question, answer); None = the hub.

    hub: data set id there (configuration "main"). split_seed: chooses the validation problems out
    of the published train part (the authors don't state theirs). steps: "authors", the only rule.
    gold_commas: "authors" keeps the commas of gold answers, as behind the paper's numbers, so that
    problems which have one cannot be solved (`count_gold_commas`); "clean" removes them.
    """

    name = "gsm8k"
    stop = prompts.STOP

    def __init__(
        self,
        path: str | None = None,
        hub: str = "openai/gsm8k",
        steps: str = "authors",
        split_seed: int = 0,
        gold_commas: str = "authors",
    ):
        if steps != "authors":
            raise ConfigError(
                f"task.steps={steps!r}: for gsm8k code and paper agree on one rule; use 'authors'"
            )
        if gold_commas not in ("authors", "clean"):
            raise ConfigError(
                f"task gsm8k: gold_commas={gold_commas!r} must be 'authors' or 'clean'"
            )
        self.path, self.hub, self.split_seed = path, hub, split_seed
        self.gold_commas = gold_commas
        self.step_failures = 0

    def load(self, split: str) -> Sequence[Problem]:
        """7,100 train, 373 validation or 1,319 test problems, in the order of the source.

        Of a train part of another size the same share is for validation, with a warning.
        """
        if split not in ("train", "validation", "test"):
            raise ConfigError(f"task gsm8k has no split {split!r}; valid: train, validation, test")
        part = "test" if split == "test" else "train"
        rows = self._rows(part)
        problems = [_problem(row, f"{part}/{index}") for index, row in enumerate(rows)]
        if len(rows) != PUBLISHED[part]:
            warnings.warn(
                f"{rows[0].where.rpartition(':')[0]} holds {len(rows)} problems, the published "
                f"{part} part {PUBLISHED[part]}: results don't compare with published ones",
                stacklevel=2,
            )
        if split == "test":
            return problems
        held_out = self._held_out(len(problems))
        return [p for index, p in enumerate(problems) if (index in held_out) == (split != "train")]

    def _rows(self, part: str) -> list[Row]:
        if self.path is None:
            return hub_rows(self.hub, "main", part, f"gsm8k_{part}.jsonl")
        return local_rows(Path(self.path), f"gsm8k_{part}.jsonl")

    def _held_out(self, size: int) -> set[int]:
        count = round(size * VALIDATION / PUBLISHED["train"])
        order = np.random.default_rng(self.split_seed).permutation(size)
        return set(order[:count].tolist())

    def prompt(self, problem: Problem) -> str:
        return prompts.solve(problem.problem)

    def target(self, problem: Problem) -> str:
        return f"\n{problem.solution}\n"

    def finished(self, response: str) -> bool:
        """Without an answer mark a response counts as unfinished, even if the model ended it."""
        return MARK in response

    def split_steps(self, response: str) -> list[int]:
        """A step is a line and the newline before it. Leading blank lines belong to the first step,
        and the answer, with blank lines before it, to the last; other blank lines are steps.

        Two answers make the authors' splitter fail and lose the trajectory; here such a response is
        one step, counted in `step_failures`.
        """
        parts = response.split(ANSWER_PREFIX)
        if len(parts) > 2:
            self.step_failures += 1
            return [0, len(response)]
        if not response:
            return [0]
        lines = parts[0].split("\n")
        written = [index for index, line in enumerate(lines) if line.strip()]
        if len(parts) == 2 and not written:
            return [0, len(response)]
        newline, starts = -1, []
        for line in lines:
            starts.append(max(newline, 0))
            newline += len(line) + 1
        first = written[0] if written else 0
        last = written[-1] if len(parts) == 2 else len(lines) - 1
        # A response of blank lines only starts with an empty line, which is no step.
        inner = [start for start in starts[first + 1 : last + 1] if start > 0]
        return [0, *inner, len(response)]

    def extract_answer(self, response: str) -> str | None:
        """All text behind the last `####`, stripped. Marks are found from the left: behind five
        hashes, one is left."""
        parts = response.split(MARK)
        return parts[-1].strip() if len(parts) > 1 else None

    def grade(self, problem: Problem, response: str) -> float:
        """1 if the answers are the same text, but for case and the prediction's commas.

        Nothing is compared as a number: 18.0, $18 and `18.` are wrong where the gold answer is 18.
        """
        answer, gold = self.extract_answer(response), _gold(problem)
        if answer is None:
            return 0.0
        if self.gold_commas == "clean":
            gold = gold.replace(",", "")
        return float(answer.replace(",", "").strip().lower() == gold.strip().lower())

    def grade_strict(self, problem: Problem, response: str) -> float:
        """1 if the answers are equal as numbers, with `$` and commas ignored.

        A simple rule for answers that are all numbers; it does not look for units or words.
        """
        answer = self.extract_answer(response)
        given = None if answer is None else _number(answer)
        return float(given is not None and given == _number(_gold(problem)))


def count_gold_commas(problems: Sequence[Problem]) -> int:
    """How many problems `gold_commas="authors"` makes unsolvable."""
    return sum("," in _gold(problem) for problem in problems)


def _gold(problem: Problem) -> str:
    if problem.answer is None:
        raise UserError(f"problem {problem.id} has no gold answer; add it to the data")
    return problem.answer


def _number(text: str) -> Fraction | None:
    text = text.replace(",", "").replace("$", "").strip().removesuffix(".")
    # Longer digit strings than any answer's would only cost time.
    if len(text) > 100 or not NUMBER.fullmatch(text):
        return None
    numerator, _, denominator = text.partition("/")
    if denominator and not int(denominator):
        return None
    return Fraction(numerator) / int(denominator or 1)


def _problem(row: Row, name: str) -> Problem:
    question, answer = row.text("question").strip(), row.text("answer")
    if answer.count(MARK) != 1:
        raise UserError(
            f"{row.where}: no gold answer can be read, 'answer' must contain {MARK} once and "
            f"contains it {answer.count(MARK)} times; correct or remove the line"
        )
    gold = answer.partition(MARK)[2].strip()
    if not gold:
        raise UserError(
            f"{row.where}: the gold answer behind {MARK} is empty; correct or remove the line"
        )
    if not question:
        raise UserError(f"{row.where}: 'question' is empty; correct or remove the line")
    solution = CALCULATOR.sub("", answer)
    return Problem(id=name, problem=question, solution=solution, answer=gold)
