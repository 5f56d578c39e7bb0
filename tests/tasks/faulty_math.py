"""MATH whose grading does not come to an end: at random, or in each comparison of two formulas."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from vinejax.tasks import Problem
from vinejax.tasks.ledger import Ledger
from vinejax.tasks.math import Math, symbolic

if TYPE_CHECKING:  # workers do without
    from vinejax.tokenizer import Tokenizer


class RandomlyHanging(Math):
    """Every other grading never ends; which one is left to chance.

    Problems and texts are the ledger's, so that a small policy writes some of them at once. The
    answer that MATH grades is made of a response's digits, so that rewards vary.
    """

    name = "randomly_hanging"
    stop, sft_split = Ledger.stop, Ledger.sft_split

    def __init__(self) -> None:
        super().__init__()
        self._ledger = Ledger(
            length=2, sft_size=160, train_size=40, validation_size=10, test_size=10
        )

    def load(self, split: str) -> Sequence[Problem]:
        solution = "So it is $\\boxed{1}$."
        return [replace(problem, solution=solution) for problem in self._ledger.load(split)]

    def tokenizer(self) -> "Tokenizer":
        return self._ledger.tokenizer()

    def prompt(self, problem: Problem) -> str:
        return self._ledger.prompt(problem)

    def target(self, problem: Problem) -> str:
        return f"{problem.problem}\n#### {problem.answer}"

    def split_steps(self, response: str) -> list[int]:
        return self._ledger.split_steps(response)

    def grade(self, problem: Problem, response: str) -> float:
        if os.urandom(1)[0] % 2:
            spin()
        answer = sum(int(character) for character in response if character.isdigit()) % 3
        return super().grade(problem, f"So it is $\\boxed{{{answer}}}$.")


class Slow(Math):
    """Each comparison of formulas takes `seconds` of CPU time and adds a line to the file `calls`.

    It finds them different.
    """

    name = "slow"

    def __init__(self, calls: str, seconds: float = math.inf) -> None:
        super().__init__()
        self.calls, self.seconds = Path(calls), seconds

    def grade(self, problem: Problem, response: str) -> float:
        with mock.patch.object(symbolic, "equal", self._compare):
            return super().grade(problem, response)

    def _compare(self, prediction: str, gold: str) -> bool:
        with self.calls.open("a") as file:
            file.write(f"{prediction} = {gold}\n")
        spin(self.seconds)
        return False


def spin(seconds: float = math.inf) -> None:
    """Uses CPU time, nearly all of it in user mode."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(20_000))
