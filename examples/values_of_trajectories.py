"""What every step of a solution is worth to a policy, whoever wrote the solution.

    PYTHONPATH=. python examples/values_of_trajectories.py FILE --run=DIR
    PYTHONPATH=. python examples/values_of_trajectories.py FILE --model=FOLDER --config=NAME

The policy is that of a run, or a Hugging Face folder with the task and the sampling rules of a
named configuration. FILE holds a JSON object a line:

    {"problem": "2+3-1", "answer": "54", "response": "2+3=5\\n5-1=4\\n#### 54"}

(for the task `math` "solution" in place of "answer"). From the prompt and from the end of each step
the policy writes K continuations, which the task's grader grades; the KV of what comes before is
computed once a trajectory. Printed are, step by step, the value before it and its advantage.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from experiments import configs
from experiments.evaluate import of_model
from vinejax import analysis, train
from vinejax.tasks import Problem


def read(file: Path) -> list[tuple[Problem, str]]:
    """Problems and responses; the text of a problem is its id."""
    given = []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text, solution, answer = row["problem"], row.get("solution", ""), row.get("answer")
        problem = Problem(id=text, problem=text, solution=solution, answer=answer)
        given.append((problem, row["response"]))
    return given


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--config", default="gsm8k_smollm2")
    parser.add_argument("--k", type=int, default=9)
    flags = parser.parse_args(argv)
    if flags.run is not None:
        config = train.read_config(flags.run)
    else:
        config = of_model(configs.get(flags.config), flags.model)
    for found in analysis.values_of(config, read(flags.file), run=flags.run, k=flags.k):
        print(f"reward {found.reward:g}: {found.problem.problem}")
        for step in zip(found.values, found.advantages, found.steps, strict=True):
            print("  V {:.2f}  A {:+.2f}  {!r}".format(*step))


if __name__ == "__main__":
    main()
