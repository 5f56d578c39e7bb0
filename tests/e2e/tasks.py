"""A task that rewards what an untrained policy does, so that small runs learn something."""

from vinejax.tasks import Problem
from vinejax.tasks.ledger import Ledger


class Digits(Ledger):
    """Two-fact ledger problems; the reward is 0, 0.5 or 1 by the sum of the response's digits.

    Some responses fail the step rule, as they may in tasks that have a rule of their own.
    """

    name = "digits"

    def __init__(self) -> None:
        super().__init__(
            length=2, sft_size=160, train_size=40, validation_size=10, test_size=10, sloppy=0.2
        )

    def grade(self, problem: Problem, response: str) -> float:
        return sum(int(c) for c in response if c.isdigit()) % 3 / 2

    def split_steps(self, response: str) -> list[int]:
        if sum(c.isdigit() for c in response) % 4 == 3:
            self.step_failures += 1
            return [0, len(response)]
        return super().split_steps(response)


class Raising(Digits):
    """The grader has a fault that every answer meets."""

    name = "raising"

    def grade(self, problem: Problem, response: str) -> float:
        return float(problem.meta["gold"] == response)


class Hopeless(Digits):
    """No response is worth anything."""

    name = "hopeless"

    def grade(self, problem: Problem, response: str) -> float:
        return 0.0
