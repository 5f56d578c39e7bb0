"""What a run would do, and whether its data and tokenizer are there: `--dry_run`. No weights."""

from pathlib import Path
from typing import Any

from vinejax.config import Config, choices, every_n_tokens
from vinejax.tasks import Task
from vinejax.tokenizer import load_tokenizer

OFFLINE = ("restem", "dpo_positive")  # train on what is kept of many iterations, without PPO's loss


def plan(config: Config, out: Path) -> dict[str, Any]:
    """Counts and limits that follow from the configuration alone."""
    trains = config.algorithm != "sft"
    iterations = config.iterations if trains else 0
    return {
        "config": config.name,
        "algorithm": config.algorithm,
        "task": config.task.name,
        "policy": config.sft.path or config.policy.path or "random initialisation",
        "seed": config.seed,
        "out": str(out),
        **_of_sft(config),
        "iterations": iterations,
        "prompts_per_iteration": config.prompts,
        "episodes_per_iteration": config.episodes,
        "episodes": iterations * config.episodes,
        **_updates(config),
        **_of_method(config),
        "prompt_tokens_at_most": config.task.max_prompt_tokens,
        "new_tokens_at_most": config.sampling.max_new_tokens,
        "context_trajectory_rollout_evaluation": [
            config.sampling.context,
            config.values.context,
            config.evaluation.context,
        ],
        "sampling_temperature_top_p": [config.sampling.temperature, config.sampling.top_p],
        "training_sequence_at_most": config.update.max_sequence,
        **(_of_update(config) if trains else {}),
        "evaluation_every_samples_temperature_top_p": [
            config.evaluation.every,
            config.evaluation.samples,
            config.evaluation.temperature,
            config.evaluation.top_p,
        ],
        "checkpoint_every_kept_every": [config.checkpoint.every, config.checkpoint.keep_period],
        **{f"choices.{name}": taken for name, taken in choices(config).items()},
    }


def _of_sft(config: Config) -> dict[str, Any]:
    """Where reinforcement learning starts from."""
    sft = config.sft
    if sft.path is not None or sft.epochs == 0:
        return {"sft": f"none: starts from {sft.path or config.policy.path or 'random weights'}"}
    return {
        "sft_epochs": sft.epochs,
        "sft_learning_rates": list(sft.learning_rates or (sft.learning_rate,)),
        "sft_batch": sft.batch,
        "sft_checkpoint": sft.select,
    }


def _of_update(config: Config) -> dict[str, Any]:
    """The numbers of every update."""
    update = config.update
    return {
        "update_epochs": update.epochs,
        "minibatch_microbatch": [update.minibatch, update.microbatch],
        "learning_rate": update.learning_rate,
        "warmup_ratio_shape_decay": [update.warmup_ratio, update.warmup, update.decay],
        "max_grad_norm": update.max_grad_norm,
    } | (
        {}
        if config.algorithm in OFFLINE
        else {"clip": update.clip, "kl_k3_coefficient_clamp": [update.kl, update.kl_clamp]}
    )


def _updates(config: Config) -> dict[str, Any]:
    """Optimizer steps, where they follow from the configuration."""
    if config.algorithm in OFFLINE:
        return {"updates": f"{config.update.epochs} epochs over what is kept of a round"}
    every = config.update.epochs * config.episodes // config.update.minibatch
    trains = config.algorithm != "sft"
    return {"updates_per_iteration": every, "updates": config.updates if trains else 0}


def _of_method(config: Config) -> dict[str, Any]:
    """The numbers that the method alone has."""
    update, critic, restem, dpo = config.update, config.critic, config.restem, config.dpo
    shared = {
        "advantages_whitened": config.advantages.whiten,
        "policy_term_divided_by": update.divisor,
    }
    return {
        "vineppo": shared
        | {
            "rollouts_per_state": config.values.k,
            "tokens_between_states": every_n_tokens(config.values.states) or "one reasoning step",
            "values_pool_min_samples_plan": [
                config.values.pool,
                config.values.min_samples,
                config.values.plan,
            ],
        },
        "ppo": shared
        | {
            "critic_learning_rate": (
                update.learning_rate if critic.learning_rate is None else critic.learning_rate
            ),
            "critic_epochs": critic.epochs or update.epochs,
            "critic_clip": critic.clip,
            "gamma_lambda": [critic.gamma, critic.lam],
        },
        "grpo": shared | {"divided_by_standard_deviation": config.advantages.std},
        "rloo": shared,
        "restem": {
            "rounds": restem.rounds,
            "kept_per_problem_at_most": restem.keep,
            "updates_between_validations": restem.evaluate_every,
            "stopping": restem.stopping,
        },
        "dpo_positive": {
            "pairs_per_problem_at_most": dpo.pairs,
            "beta": dpo.beta,
            "penalty": dpo.penalty,
            "label_smoothing": dpo.label_smoothing,
        },
    }.get(config.algorithm, {})


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
