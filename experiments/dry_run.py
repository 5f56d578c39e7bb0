"""What a run would do, and whether its data, tokenizer and grader are fit for it: `--dry_run`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments import inputs
from vinejax.config import Config, choices, every_n_tokens
from vinejax.tasks import Task

OFFLINE = ("restem", "dpo_positive")  # train on what is kept of many iterations, without PPO's loss


def plan(config: Config, out: Path) -> dict[str, dict[str, Any]]:
    """Counts and limits that follow from the configuration alone, by heading."""
    trains = config.algorithm != "sft"
    iterations = config.iterations if trains else 0
    evaluation = config.evaluation
    return {
        "Run": {
            "config": config.name,
            "algorithm": config.algorithm,
            "task": config.task.name,
            "policy": config.sft.path or config.policy.path or "random initialisation",
            "seed": config.seed,
            "out": str(out),
        },
        "Supervised fine-tuning": _of_sft(config),
        "Sampling": {
            "iterations": iterations,
            "prompts_per_iteration": config.prompts,
            "episodes_per_iteration": config.episodes,
            "episodes": iterations * config.episodes,
            "sampling": {
                "temperature": config.sampling.temperature,
                "top_p": config.sampling.top_p,
            },
            "prompt_tokens_at_most": config.task.max_prompt_tokens,
            "new_tokens_at_most": config.sampling.max_new_tokens,
            "context_tokens": {
                "trajectory": config.sampling.context,
                "rollout": config.values.context,
                "evaluation": evaluation.context,
            },
        },
        "Method": _of_method(config),
        "Updates": {
            **_updates(config),
            **(_of_update(config) if trains else {}),
            "training_sequence_at_most": config.update.max_sequence,
        },
        "Evaluation and checkpoints": {
            "evaluation": {
                "every": evaluation.every,
                "samples": evaluation.samples,
                "temperature": evaluation.temperature,
                "top_p": evaluation.top_p,
            },
            "checkpoint": {
                "every": config.checkpoint.every,
                "keep_period": config.checkpoint.keep_period,
            },
        },
        "Where the authors' code surprises": {
            f"choices.{name}": taken for name, taken in choices(config).items()
        },
    }


def report(config: Config, task: Task, out: Path) -> tuple[dict[str, Any], str]:
    """The plan and what was found of data, tokenizer and grader: as one record, and as text.

    Raises UserError if a run would, as far as that can be known here.
    """
    parts = plan(config, out)
    found, warnings = inputs.check(config, task)
    parts["Data, tokenizer and grader"] = found
    record = {name: value for part in parts.values() for name, value in part.items()}
    lines = []
    for heading, part in parts.items():
        if part:
            lines += [heading, *(f"  {name:<38} {value}" for name, value in _rows(part))]
    lines += [f"warning: {warning}" for warning in warnings]
    return record | {"warnings": warnings}, "\n".join(lines)


def _rows(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values for people; each dictionary in a dictionary has a row of its own."""
    for name, value in part.items():
        if not isinstance(value, dict):
            yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        elif any(isinstance(own, dict) for own in value.values()):
            yield from _rows({f"{name}.{key}": own for key, own in value.items()})
        else:
            yield name, ", ".join(f"{key} {own}" for key, own in value.items())


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
        "batch": {"minibatch": update.minibatch, "microbatch": update.microbatch},
        "learning_rate": update.learning_rate,
        "schedule": {
            "warmup_ratio": update.warmup_ratio,
            "warmup": update.warmup,
            "decay": update.decay,
        },
        "max_grad_norm": update.max_grad_norm,
    } | (
        {}
        if config.algorithm in OFFLINE
        else {"clip": update.clip, "kl_k3": {"coefficient": update.kl, "clamp": update.kl_clamp}}
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
            "values": {
                "pool": config.values.pool,
                "min_samples": config.values.min_samples,
                "plan": config.values.plan,
            },
        },
        "ppo": shared
        | {
            "critic_learning_rate": (
                update.learning_rate if critic.learning_rate is None else critic.learning_rate
            ),
            "critic_epochs": critic.epochs or update.epochs,
            "critic_clip": critic.clip,
            "gae": {"gamma": critic.gamma, "lambda": critic.lam},
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
