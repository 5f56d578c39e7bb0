"""What a run would do, and whether its data and tokenizer are there: `--dry_run`. No weights."""

from pathlib import Path
from typing import Any

from vinejax.config import Config, choices, every_n_tokens
from vinejax.tasks import Task
from vinejax.tokenizer import load_tokenizer


def plan(config: Config, out: Path) -> dict[str, Any]:
    """Counts and limits that follow from the configuration alone."""
    trains = config.algorithm != "sft"
    return {
        "config": config.name,
        "algorithm": config.algorithm,
        "task": config.task.name,
        "policy": config.sft.path or config.policy.path or "random initialisation",
        "seed": config.seed,
        "out": str(out),
        "sft_epochs": 0 if config.sft.path else config.sft.epochs,
        "iterations": config.iterations if trains else 0,
        "prompts_per_iteration": config.prompts,
        "episodes_per_iteration": config.episodes,
        "updates_per_iteration": config.update.epochs * config.episodes // config.update.minibatch,
        "updates": config.updates if trains else 0,
        "rollouts_per_state": config.values.k,
        "tokens_between_states": every_n_tokens(config.values.states) or "one reasoning step",
        "prompt_tokens_at_most": config.task.max_prompt_tokens,
        "new_tokens_at_most": config.sampling.max_new_tokens,
        "context_trajectory_rollout_evaluation": [
            config.sampling.context,
            config.values.context,
            config.evaluation.context,
        ],
        "training_sequence_at_most": config.update.max_sequence,
        **{f"choices.{name}": taken for name, taken in choices(config).items()},
    }


def check_inputs(config: Config, task: Task) -> dict[str, Any]:
    """Loads the data, if task.path is set, and the tokenizer, if it is in a folder here.

    Raises UserError if something is missing or broken. Nothing is fetched from the hub.
    """
    return {"problems": _sizes(config, task), "tokenizer": _tokenizer(config)}


def _sizes(config: Config, task: Task) -> dict[str, int] | str:
    if config.task.path is None:
        return "not checked: task.path is not set"
    return {split: len(task.load(split)) for split in ("train", "validation", "test")}


def _tokenizer(config: Config) -> str:
    source = config.policy.tokenizer or config.sft.path or config.policy.path
    if source is None:
        return "the task's own"
    is_path = source.count("/") != 1 or source.startswith((".", "/", "~"))
    if not is_path and not Path(source).exists():
        return f"not checked: {source} is no folder here, so it is taken for a hub id"
    return f"{source}, {load_tokenizer(source).vocab_size} ids"
