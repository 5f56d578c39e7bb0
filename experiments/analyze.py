"""How good a run's values are, by checkpoint, and what its accuracy cost: the paper's analyses.

python -m experiments.analyze --run=DIR [--out=DIR/analysis] [--states=200] [--rollouts=256]
                              [--actions=100] [--alternatives=3] [--gradients=8]
                              [--checkpoints=all|newest|N,M] [--json]

From the policy of every kept checkpoint, and from the start of reinforcement learning (0), states
are sampled; their true values are means of fresh rollouts. Against these are set rollouts of their
own, a critic's values, and the means of a prompt's other samples. How noisy the policy gradient is
that these lead to is measured at the first and the last checkpoint. The same command goes on where
it was interrupted. docs/analysis.md has the definitions.

  vinejax/analysis/predictors.py  a checkpoint's policy and critic; rollouts under named keys
  vinejax/analysis/values.py      states, their truth and predictions; metrics by predictor
  vinejax/analysis/actions.py     the best of 5 sampled next steps
  vinejax/analysis/gradients.py   noise of the policy gradient, by estimator
  vinejax/analysis/quality.py     metrics, bootstrap over problems
  vinejax/analysis/curves.py      accuracy against cost, KL and training accuracy
  vinejax/analysis/figures.py     analysis.html
  vinejax/analysis/run.py         order of work, files, resuming
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import cli
from vinejax.config import ConfigError


@dataclass(frozen=True)
class AnalyzeFlags:
    """Flags of this command."""

    run: Path | None = None  # Folder of the run; nothing in it is changed.
    out: Path | None = None  # Where results go; default RUN/analysis.
    states: int = 200  # Of each checkpoint: states whose values are predicted.
    rollouts: int = 256  # Of a true value.
    actions: int = 100  # Of the first two checkpoints: states whose next steps are ranked; 0: none.
    alternatives: int = 3  # Distinct ones of 5 sampled next steps that such a state has at least.
    gradients: int = 8  # Of the first and last checkpoint: batches whose gradients are compared.
    checkpoints: str = "all"  # all, newest, or iterations such as 0,10,20; 0 is the start.
    json: bool = False  # Print the metrics as one JSON line, last on standard output.


def run(argv: list[str]) -> None:
    """Parse, sample what is missing, write; see `AnalyzeFlags` for the arguments."""
    flags = cli.parse_flags(argv, AnalyzeFlags(), "python -m experiments.analyze", __doc__ or "")
    if flags.run is None:
        raise ConfigError("--run=DIR is missing: give the folder of a run")
    for name, least in (("states", 1), ("rollouts", 1), ("actions", 0), ("alternatives", 2)):
        if getattr(flags, name) < least:
            raise ConfigError(f"--{name} is {getattr(flags, name)}: give {least} or more")
    if flags.gradients < 4 and flags.gradients != 0:
        raise ConfigError(f"--gradients is {flags.gradients}: give 4 or more, or 0 for none")
    cli.use_compile_cache()
    from vinejax import analysis  # after the cache is set: this import starts JAX
    from vinejax.analysis.run import PAGE

    out = flags.out or flags.run / "analysis"
    asked = analysis.Asked(
        flags.states, flags.rollouts, flags.actions, flags.alternatives, flags.gradients
    )
    result = analysis.analyse(flags.run, out, asked, flags.checkpoints, _note)
    if flags.json:
        cli.print_json({"run": str(flags.run), "out": str(out)} | result)
    else:
        print("\n".join([*lines(result), f"{out / PAGE} shows it"]))


def lines(result: Mapping[str, Any]) -> list[str]:
    """The main numbers as a table."""
    from vinejax.analysis.quality import as_text

    shown = [
        "iteration  predictor       within .05              MAE                     error a step"
    ]
    for at in result["values"]:
        for name, found in at["predictors"].items():
            numbers = (as_text(found[m]) for m in ("within_0.05", "mae", "error_slope"))
            shown.append(
                f"{at['iteration']:>9}  {name:<14}" + "".join(f"  {n:<22}" for n in numbers)
            )
    for at in result["actions"]:
        shown.append(
            f"best of next steps, iteration {at['iteration']}: "
            f"{at['with_spread']} of {at['with_alternatives']} states have spread"
        )
        shown += [f"           {n:<14}  {as_text(v)}" for n, v in at["predictors"].items()]
    for at in result["gradients"]:
        shown.append(
            f"gradients, iteration {at['iteration']}: {at['batches']} batches of "
            f"{at['trajectories']} trajectories"
        )
        shown.append("estimator        tokens  noise / signal          tokens until they are equal")
        for name, found in at["estimators"].items():
            ratio = as_text(found["noise_to_signal"], ".2f")
            equal = as_text(found["tokens_to_signal"], ",.0f")
            shown.append(f"{name:<14}  {found['tokens']:>7,.0f}  {ratio:<22}  {equal}")
    return shown


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())
