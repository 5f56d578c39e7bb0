"""Does it matter which step gets which advantage? VinePPO against itself with permuted credit.

For each seed: one SFT policy, then two runs from it that differ in `advantages.permute` alone. The
seed n is that of the model and the sampling; 1000 + n is that of the facts and problems.

    python -m benchmarks.credit_matters --out=DIR [--seeds 11 12 13] [--iterations=50] [--json]
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro


@dataclass(frozen=True)
class Arguments:
    """Run VinePPO with its own and with permuted step advantages."""

    out: Path  # Folder of all runs; finished ones are not repeated.
    seeds: tuple[int, ...] = (11, 12, 13)
    iterations: int = 50
    json: bool = False  # Print the result as one JSON line.


def run(module: str, *flags: str) -> None:
    """One command of the project; its progress goes to standard error."""
    subprocess.run([sys.executable, "-m", module, *flags], check=True, stdout=sys.stderr)


def runs_of(arguments: Arguments, seed: int) -> dict[str, dict[str, Any]]:
    """The summaries of both runs of a seed."""
    folder = arguments.out / f"seed{seed}"
    common = [
        "--config=tiny",
        "--resume",
        f"--config.seed={seed}",
        f"--config.task.options.seed={1000 + seed}",
        f"--config.iterations={arguments.iterations}",
    ]
    run("experiments.run", *common, "--config.algorithm=sft", f"--out={folder / 'sft'}")
    start = folder / "start"
    if not start.exists():
        run("experiments.export", f"--run={folder / 'sft'}", f"--to={start}")
    summaries = {}
    for name, permute in (("vineppo", "false"), ("permuted", "true")):
        flags = [f"--config.sft.path={start}", f"--config.advantages.permute={permute}"]
        run("experiments.run", *common, *flags, f"--out={folder / name}")
        summaries[name] = json.loads((folder / name / "summary.json").read_text())
    return summaries


def main() -> None:
    """Prints a row a seed, and means with standard deviations over seeds."""
    arguments = tyro.cli(Arguments)
    rows = {seed: runs_of(arguments, seed) for seed in arguments.seeds}
    columns = {
        "SFT": [row["vineppo"]["sft_pass_at_1"] for row in rows.values()],
        "VinePPO": [row["vineppo"]["final_pass_at_1"] for row in rows.values()],
        "permuted": [row["permuted"]["final_pass_at_1"] for row in rows.values()],
    }
    print("seed " + " ".join(f"{name:>9}" for name in columns), file=sys.stderr)
    for i, seed in enumerate(rows):
        numbers = " ".join(f"{100 * column[i]:8.1f}%" for column in columns.values())
        print(f"{seed:4} {numbers}", file=sys.stderr)
    result = {
        "seeds": list(rows),
        "iterations": arguments.iterations,
        "pass_at_1": columns,
        "mean": {name: float(np.mean(column)) for name, column in columns.items()},
        "deviation": {name: float(np.std(column, ddof=1)) for name, column in columns.items()},
        "seconds": [row["vineppo"]["seconds"] for row in rows.values()],
    }
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
