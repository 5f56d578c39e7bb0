"""What a task is: data, prompt, stop rule, steps, answers and grading of one kind of problem.

A user adds a task in one file, without touching another:

    from vinejax.tasks import Problem, Task

    class Doubling(Task):
        name = "doubling"
        stop = ("\\n\\n",)

        def __init__(self, largest: int = 100):
            self.largest = largest

        def load(self, split):
            offset = {"train": 0, "validation": 1, "test": 2}[split]
            numbers = range(offset, self.largest, 3)
            return [
                Problem(id=str(n), problem=f"2*{n}=", solution=f"{n}+{n}\\n{2*n}", answer=str(2*n))
                for n in numbers
            ]

        def extract_answer(self, response):
            return response.strip().rpartition("\\n")[2] or None

It is then reached as `tasks.get("my_module:Doubling", largest=50)`, or as `tasks.get("doubling")`
after `tasks.register("doubling", Doubling)`. Its options are the keywords of `__init__`. Grading
happens in other processes, which import the class from its module: that module must not import JAX.
`examples/own_task.py` reads its problems from files; `examples/program_reward.py` grades by another
program.
"""

import abc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # graders need no tokenizer
    from vinejax.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem.

    id: unique within its task; with the response it identifies a verdict.
    problem: the statement, without template. solution: a worked solution (what SFT imitates).
    answer: the gold answer; None where the grader takes it from `solution`.
    """

    id: str
    problem: str
    solution: str
    answer: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


class Task(abc.ABC):
    """One kind of problem. `load` and `extract_answer` must be given; the rest has defaults.

    In every method `response` is all text after the prompt: for a Monte Carlo rollout that is the
    prefix and its continuation. A stop string is already cut off. Truncated responses are worth 0,
    which is the caller's rule, not the task's.
    """

    name: ClassVar[str]
    stop: ClassVar[tuple[str, ...]] = ()
    """Strings at which a response ends; they are not part of it."""
    sft_split: ClassVar[str] = "train"
    """The split whose solutions are the demonstrations for supervised fine-tuning."""
    runs_programs: ClassVar[bool] = False
    """Whether grading starts programs; without it grading workers must not. Give a program a time
    limit, and one below the wall clock's for an answer, 4 x grading.limit + 10 s: there the worker
    is killed together with what it has started. It inherits the worker's limits (`grading.limits`),
    so there is no network, where the system allows to take it away."""
    longest_prompt: int | None = None
    """Tokens of the longest prompt, BOS included; None = not known in advance."""
    longest_response: int | None = None
    """Tokens of the longest demonstration, EOS included; None = not known in advance."""
    step_failures: int = 0
    """How many responses so far were taken as one step because the step rule does not fit them."""

    @abc.abstractmethod
    def load(self, split: str) -> Sequence[Problem]:
        """Problems of "train", "validation" or "test", in a fixed order.

        Raises UserError, naming file, line and remedy, when the data is missing or broken.
        """

    @abc.abstractmethod
    def extract_answer(self, response: str) -> str | None:
        """The final answer that a response states; None if it states none."""

    def prompt(self, problem: Problem) -> str:
        """The text that the policy continues."""
        return problem.problem

    def target(self, problem: Problem) -> str:
        """The response that SFT teaches, without the end-of-sequence token."""
        return problem.solution

    def split_steps(self, response: str) -> list[int]:
        """Character boundaries [0, ..., len(response)] of the steps, strictly increasing.

        Never raises; an empty response has no step ([0]). The default: a step is a line, with the
        newline that ends it.
        """
        boundaries = [0]
        for line in re.finditer("[^\n]*\n|[^\n]+", response):
            boundaries.append(line.end())
        return boundaries

    def finished(self, response: str) -> bool:
        """Whether a response that ended by itself counts as finished; if not it is worth 0 and, as
        in truncated ones, no end-of-sequence token is trained."""
        return True

    def grade(self, problem: Problem, response: str) -> float:
        """Reward in [0, 1]; deterministic. The default: 1 for exactly the gold answer."""
        answer = self.extract_answer(response)
        return float(answer is not None and answer == problem.answer)

    def grade_strict(self, problem: Problem, response: str) -> float:
        """A second, independent verdict in [0, 1], reported beside `grade`."""
        return self.grade(problem, response)

    @property
    def has_two_graders(self) -> bool:
        """Whether `grade_strict` is another one than `grade`."""
        return type(self).grade_strict is not Task.grade_strict

    def tokenizer(self) -> "Tokenizer | None":
        """The task's own tokenizer; None = the policy's."""
        return None
