"""Run folders as `experiments.run` leaves them, made by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import configs
from vinejax.config import to_dict
from vinejax.report import MetricsLog, RolloutLog, write_json

Record = dict[str, Any]


def record(pieces: Sequence[str], values: Sequence[float], reward: float, **more: Any) -> Record:
    """A trajectory of one token a step; the advantages are those of VinePPO."""
    steps = list(range(len(pieces)))
    after = [*values[1:], *([reward] if pieces else [])]
    return {
        "problem": "train/7",
        "policy_step": 3,
        "prompt_length": 2,
        "tokens": [1, 5, *(6 + i for i in steps)],
        "step_starts": steps,
        "state_starts": steps,
        "values": list(values),
        "advantages": [b - a for a, b in zip(values, after, strict=True)],
        "reward": reward,
        "finish": "eos",
        "unfinished": False,
        "text": "".join(pieces),
        "text_starts": [sum(map(len, pieces[:i])) for i in steps],
        "problem_text": "1+1+1",
        "solution": "1+1=2\n2+1=3",
        **more,
    }


def rollouts(rewards: Sequence[Sequence[float]], text: str = "2+1=3") -> list[list[Record]]:
    """Rollouts of each state, all with the same text."""
    return [[{"reward": r, "text": text} for r in own] for own in rewards]


def write_run(
    folder: Path,
    records: Mapping[int, Sequence[Record]],
    algorithm: str = "vineppo",
    iterations: int = 3,
    summary: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A run with `records` by iteration and metrics of all iterations."""
    config = replace(configs.get("tiny", algorithm), iterations=iterations, seed=seed)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", to_dict(config))
    with MetricsLog(folder, 0) as log:
        for i in range(1, iterations + 1):
            log.write(line(i, i == iterations))
    for iteration, lines in records.items():
        RolloutLog(folder).write(iteration, lines)
    if summary is not None:
        write_json(folder / "summary.json", summary)
    return folder


def line(iteration: int, validates: bool) -> dict[str, Any]:
    """An iteration's metrics: 100 tokens and 2 seconds each."""
    validation = {
        "validation/pass_at_1": 0.5,
        "validation/pass_at_1_low": 0.4,
        "validation/pass_at_1_high": 0.6,
    }
    return {
        "iteration": iteration,
        "reward": iteration / 10,
        "kl_k3": None if iteration == 2 else 0.01,
        "entropy": 0.5,
        "value": 0.4,
        "tokens_sampled": 100,
        "tokens_sampled_values": 60,
        "tokens_trained": 40,
        "time/values": 1.2,
        "time/update": 0.5,
        "time/iteration": 2.0,
        "time/cpu_seconds/values": 1.0,
        "time/cpu_seconds/iteration": 1.5,
        "time/compiles": 4,
        **(validation if validates else {}),
    }


SUMMARY = {
    "algorithm": "vineppo", "task": "ledger", "seed": 0, "sft_pass_at_1": 0.25,
    "sft_interval": [0.2, 0.3], "final_pass_at_1": 0.5, "final_interval": [0.45, 0.55],
    "final_pass_at_2": 0.625, "best_pass_at_1": 0.51, "best_interval": [0.46, 0.56],
    "best_iteration": 3, "problems": 128, "samples": 4, "iterations": 3, "seconds": 63.0,
}  # fmt: skip
