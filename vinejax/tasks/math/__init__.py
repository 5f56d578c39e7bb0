"""MATH (Hendrycks et al. 2021) in the split of "Let's Verify Step by Step" (PRM800K), as VinePPO's
authors use it: `src/treetune/tasks/math.py` in their repository, commit efe7228.

A solution is a text with LaTeX; its answer stands in `\\boxed{}`.
"""

from collections.abc import Sequence

from vinejax.config import ConfigError
from vinejax.tasks import prompts
from vinejax.tasks.base import Problem, Task
from vinejax.tasks.math import data, steps


class Math(Task):
    r"""path: a folder with math_{train,test}.jsonl[.gz] and math500.jsonl; None = the hub.

    hub, hub_test: data set ids there, of all of MATH and of the 500 test problems; there is no
    default. split_seed: chooses the validation problems (the authors don't state theirs).
    steps: "authors" is their code's rule, which cuts formulas, "paper" the paper's, which does not.
    final_newline: whether demonstrations end with a newline (RhoMath's do, DeepSeekMath's do not).
    """

    name = "math"
    stop = prompts.STOP

    def __init__(
        self,
        path: str | None = None,
        hub: str | None = None,
        hub_test: str | None = None,
        split_seed: int = 0,
        steps: str = "authors",
        final_newline: bool = True,
    ):
        if steps not in ("authors", "paper"):
            raise ConfigError(f"task.steps={steps!r} must be 'authors' or 'paper'")
        self.path, self.hub, self.hub_test = path, hub, hub_test
        self.split_seed, self.steps, self.final_newline = split_seed, steps, final_newline
        self.step_failures = 0

    def load(self, split: str) -> Sequence[Problem]:
        """11,500 train, 500 validation or 500 test problems, in the order of the source.

        Of smaller sets the same share is for validation, with a warning.
        """
        if split not in ("train", "validation", "test"):
            raise ConfigError(f"task math has no split {split!r}; valid: train, validation, test")
        test = data.math500(self.path, self.hub_test)
        if split == "test":
            return test
        left = data.resplit(data.archive(self.path, self.hub), test)
        held_out = data.held_out(left, self.split_seed)
        return [problem for problem in left if (problem.id in held_out) == (split != "train")]

    def prompt(self, problem: Problem) -> str:
        return prompts.solve(problem.problem)

    def target(self, problem: Problem) -> str:
        return f"\n{problem.solution}" + "\n" * self.final_newline

    def split_steps(self, response: str) -> list[int]:
        """See `vinejax.tasks.math.steps`. Where the authors' code fails and loses the trajectory
        (short responses, nested formulas), it is one step, counted in `step_failures`."""
        if self.steps == "paper":
            return steps.paper(response)
        try:
            return steps.authors(response)
        except steps.SplitterFailure:
            self.step_failures += 1
            return [0, len(response)]

    def extract_answer(self, response: str) -> str | None:
        """The answers in boxes, or the last number, cleaned up and joined by commas. Which problem
        it is, and so whether a comma separates answers, only `grade` knows."""
        from vinejax.tasks.math import extract

        return ", ".join(extract.answers(response, "")) or None

    def grade(self, problem: Problem, response: str) -> float:
        """1 if the answers are equal by the authors' rules (DeepSeekMath's, lenient)."""
        from vinejax.tasks.math import compare, extract

        predictions = extract.answers(response, problem.problem)
        golds = extract.answers(problem.solution, problem.problem)
        return float(compare.equal_lists(predictions, golds))

    def grade_strict(self, problem: Problem, response: str) -> float:
        """1 if the last answer is equal to the solution's as mathematics (Math-Verify)."""
        from vinejax.tasks.math import strict

        return strict.grade(response, problem.solution)
