"""Evaluation by itself: of a policy of a run, or of a model on disk."""

from pathlib import Path
from typing import Any

from vinejax import policy, report
from vinejax.config import Config
from vinejax.train.evaluation import evaluate, graders_of, named
from vinejax.train.learning import decode_weights
from vinejax.train.run import params_of
from vinejax.train.setup import Setup, prepare_evaluation


def evaluate_run(
    out: Path, config: Config, split: str, iteration: int | None = None, best: bool = False
) -> dict[str, Any]:
    """Accuracy of the newest policy of the run in `out`, or of another one (see `params_of`).

    `config` is the run's, with another evaluation if so wanted: on the same settings the numbers
    are those that the run itself found. They are also written to evaluation-SPLIT-ITERATION.json.
    """
    setup, start = prepare_evaluation(config, split)
    params, iteration = params_of(out, config, start, iteration, best)
    result = {"run": str(out), "iteration": iteration} | _evaluate(setup, params, split)
    report.write_json(out / f"evaluation-{split}-{iteration}.json", result)
    return result


def evaluate_model(config: Config, split: str) -> dict[str, Any]:
    """Accuracy of the model at `policy.path`, which nothing trains."""
    setup, params = prepare_evaluation(config, split)
    return {"model": config.policy.path} | _evaluate(setup, params, split)


def _evaluate(setup: Setup, params: policy.Params, split: str) -> dict[str, Any]:
    config = setup.config
    with graders_of(config) as graders:
        found = evaluate(setup, decode_weights(setup, params), graders, setup.test, split, 0)
    numbers = {name.partition("/")[2]: value for name, value in named(split, found).items()}
    return {
        "task": config.task.name,
        "split": split,
        "seed": config.seed,
        "problems": len(setup.test),
        "samples": config.evaluation.samples,
        "grader": config.grading.grader,
        "truncated": config.evaluation.truncated,
        **numbers,
    }
