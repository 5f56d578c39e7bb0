"""What every step of a solution is worth to a policy, whoever wrote the solution.

    PYTHONPATH=. python examples/values_of_trajectories.py FILE --run=DIR
    PYTHONPATH=. python examples/values_of_trajectories.py FILE --model=FOLDER --config=NAME

The policy is that of a run, or a Hugging Face folder under a configuration's rules. FILE has lines:

    {"problem": "2+3-1", "answer": "54", "response": "2+3=5\\n5-1=4\\n#### 54"}

(for `math` "solution" in place of "answer"). From the prompt and the end of each step the policy
writes K continuations (--k=K; 9, whatever the run's `values.k`: error up to 0.5 / sqrt(K)),
which the task's grader grades. Printed are, step by step, the value before it and its advantage.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import cli, configs
from experiments.evaluate import of_model
from vinejax import analysis, train
from vinejax.tasks import Problem
from vinejax.tasks.rows import rows_of


def read(file: Path) -> list[tuple[Problem, str]]:
    """Problems and responses; the text of a problem is its id."""
    given = []
    for row in rows_of(file):
        text, solution = row.text("problem"), row.fields.get("solution", "")
        problem = Problem(id=text, problem=text, solution=solution, answer=row.fields.get("answer"))
        given.append((problem, row.text("response")))
    return given


def run(argv: Sequence[str]) -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--config", default="gsm8k_smollm2")
    parser.add_argument("--k", type=int, default=9)
    flags = parser.parse_args(argv)
    named = configs.get(flags.config)
    config = train.read_config(flags.run) if flags.run else of_model(named, flags.model)
    for found in analysis.values_of(config, read(flags.file), run=flags.run, k=flags.k):
        print(f"reward {found.reward:g}: {found.problem.problem}")
        for step in zip(found.values, found.advantages, found.steps, strict=True):
            print("  V {:.2f}  A {:+.2f}  {!r}".format(*step))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code; what is wrong with the input is a line, not a traceback."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
