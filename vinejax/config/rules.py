"""What a configuration must fulfil: the range of each field, and the rules between them."""

import math
from collections.abc import Callable, Collection
from typing import Any

from vinejax.config.data import get
from vinejax.config.errors import ConfigError, nearest
from vinejax.config.fields import (
    ALGORITHMS,
    OPTIONS,
    TASKS,
    Config,
)
from vinejax.config.values import check_values

_POSITIVE = (lambda x: x > 0, "more than 0")
_AT_LEAST_0 = (lambda x: x >= 0, "0 or more")
_AT_LEAST_1 = (lambda x: x >= 1, "1 or more")
_SHARE = (lambda x: 0 <= x <= 1, "between 0 and 1")
_SMOOTHING = (lambda x: 0 <= x < 0.5, "0 or more and less than 0.5")
_PENALTY = (lambda x: -1 <= x <= 0, "between -1 and 0")
_NUCLEUS = (lambda x: 0 < x <= 1, "more than 0 and at most 1 (1 = off)")
_MOMENT = (lambda x: 0 <= x < 1, "0 or more and less than 1")
_SEED = (lambda x: 0 <= x < 2**32, "from 0 to 4294967295")
_RING = (lambda x: x == 0 or x >= 2, "2 or more, or 0 to have it chosen")
_AXIS = (lambda x: x >= 1 or x == -1, "1 or more, or -1 for all devices that are left")

_RANGES: tuple[tuple[tuple[Callable[[Any], bool], str], str], ...] = (
    (
        _AT_LEAST_1,
        """prompts samples task.max_prompt_tokens sampling.max_new_tokens sampling.context values.k
        values.context update.epochs update.minibatch update.max_sequence update.max_skipped
        sft.batch sft.max_length evaluation.problems evaluation.test_problems
        evaluation.samples evaluation.max_new_tokens evaluation.context checkpoint.every
        checkpoint.keep critic.epochs restem.rounds restem.keep
        restem.evaluate_every dpo.pairs""",
    ),
    (
        _AT_LEAST_0,
        """iterations sampling.temperature sampling.top_k values.max_step values.min_samples
        update.learning_rate
        update.weight_decay critic.learning_rate dpo.penalty
        update.kl sft.epochs sft.weight_decay evaluation.every evaluation.temperature
        checkpoint.keep_period checkpoint.keep_rollouts grading.workers
        update.microbatch sft.microbatch mesh.fsdp mesh.tensor
        engine.rows engine.trunks engine.slots engine.wave engine.chunk""",
    ),
    (
        _POSITIVE,
        """critic.clip dpo.beta update.eps update.max_grad_norm update.clip update.kl_clamp
        update.ratio_guard sft.learning_rate sft.eps sft.max_grad_norm grading.limit""",
    ),
    (_SHARE, "update.warmup_ratio sft.warmup_ratio critic.gamma critic.lam"),
    (_SMOOTHING, "dpo.label_smoothing"),
    (_PENALTY, "sampling.truncation_reward"),
    (_NUCLEUS, "sampling.top_p evaluation.top_p"),
    (_MOMENT, "update.b1 update.b2 sft.b1 sft.b2"),
    (_AXIS, "mesh.data"),
    (_SEED, "seed"),
    (_RING, "engine.ring"),
)
_ARCHITECTURE = "hidden layers heads kv_heads head_dim ffn"

# Fields that one method alone reads, with the value that leaves it as it is: another value in a run
# of another method would be a comparison that never took place.
_OF_METHOD = (
    ("advantages.permute", False, "vineppo"),
    ("advantages.std", True, "grpo"),
    ("values.pool", False, "vineppo"),
    ("values.min_samples", 0, "vineppo"),
    ("values.plan", "all", "vineppo"),
)


def validate(
    config: Config,
    tasks: Collection[str] = TASKS,
    algorithms: Collection[str] = ALGORITHMS,
) -> None:
    """Raise ConfigError for the first rule that `config` breaks; see `Config.validate`."""
    _check_names(config, tasks, algorithms)
    for rule, names in _RANGES:
        for name in names.split():
            _check_range(config, name, rule)
    _check_policy(config)
    _check_options(config)
    check_values(config)
    _check_batches(config)
    _check_lengths(config)
    _check_method(config)
    _check_sft(config)


def _check_names(config: Config, tasks: Collection[str], algorithms: Collection[str]) -> None:
    for label, value, known in (
        ("algorithm", config.algorithm, algorithms),
        ("task.name", config.task.name, tasks),
    ):
        if value not in known and ":" not in value:
            raise ConfigError(
                f"{label} is {value!r}, which does not exist; {nearest(value, known)}"
            )
        words = value.replace(":", ".", 1).split(".")
        if ":" in value and not all(word.isidentifier() for word in words):
            raise ConfigError(
                f"{label} is {value!r}: write your own as module:Class, like my_package.module:Mine"
            )
    name = config.name
    if not name or "/" in name or not name.isprintable() or len(name) > 100:
        raise ConfigError(
            f"name is {name[:200]!r}: it becomes part of a folder name, so it needs 1 to 100 "
            "printable characters without '/'"
        )


def _check_range(config: Config, name: str, rule: tuple[Callable[[Any], bool], str]) -> None:
    value = get(config, name)
    if value is None:
        return
    if not math.isfinite(value) or not rule[0](value):
        raise ConfigError(f"{name} is {value}: it must be {rule[1]}")


def _check_policy(config: Config) -> None:
    path, shape = config.policy.path, config.policy.architecture
    if path is None and config.sft.path is None and shape is None:
        raise ConfigError(
            "policy.path is not set: give a Hugging Face folder or hub id, "
            "--config.policy.path=FOLDER"
        )
    for name in ("policy.path", "sft.path"):
        if get(config, name) is not None and shape is not None:
            raise ConfigError(
                f"{name} is {get(config, name)!r} and policy.architecture is set: a model on disk "
                "has its own shape; set one of the two"
            )
    if path is None and config.policy.revision is not None:
        raise ConfigError(
            f"policy.revision is {config.policy.revision!r} without policy.path: "
            "set policy.path to a hub id"
        )
    if shape is None:
        return
    for name in _ARCHITECTURE.split():
        _check_range(config, f"policy.architecture.{name}", _AT_LEAST_1)
    for name in ("rope_theta", "norm_eps"):
        _check_range(config, f"policy.architecture.{name}", _POSITIVE)
    _divides(
        "policy.architecture.kv_heads", shape.kv_heads, "policy.architecture.heads", shape.heads
    )
    tensor = config.mesh.tensor or 1  # 0: chosen so that it divides
    _divides("mesh.tensor", tensor, "policy.architecture.kv_heads", shape.kv_heads)
    if shape.head_dim % 2:
        raise ConfigError(
            f"policy.architecture.head_dim is {shape.head_dim}: rotary needs an even number"
        )


def _check_options(config: Config) -> None:
    task = config.task
    expected = OPTIONS.get(task.name, type(None))
    if not isinstance(task.options, expected):
        have = type(task.options).__name__
        raise ConfigError(
            f"task.options is {have} but task.name is {task.name!r}: it must be {expected.__name__}"
        )
    if task.steps != "authors" and task.name != "math":
        raise ConfigError(
            f"task.steps is {task.steps!r}: task {task.name!r} has one rule; leave it at authors"
        )
    if task.path is not None and task.name == "ledger":
        raise ConfigError(
            f"task.path is {task.path!r}: the ledger task generates its data; leave it unset"
        )


def _divides(small: str, value: int, large: str, total: int) -> None:
    if total % value:
        fits = [n for n in range(1, total + 1) if total % n == 0]
        raise ConfigError(
            f"{small} is {value}, which does not divide {large} = {total}: "
            f"use one of {', '.join(map(str, fits[-8:]))}"
        )


def _check_batches(config: Config) -> None:
    update = config.update
    _divides("update.minibatch", update.minibatch, "prompts * samples", config.episodes)
    microbatch = update.microbatch or update.minibatch
    _divides("update.microbatch", microbatch, "update.minibatch", update.minibatch)
    microbatch = config.sft.microbatch or config.sft.batch
    _divides("sft.microbatch", microbatch, "sft.batch", config.sft.batch)
    if config.sampling.temperature == 0 and config.algorithm != "sft":
        raise ConfigError(
            "sampling.temperature is 0: greedy trajectories leave nothing to learn from; "
            "set it above 0 (evaluation.temperature may be 0)"
        )


def _check_lengths(config: Config) -> None:
    longest = config.task.max_prompt_tokens
    for name in ("sampling.context", "values.context", "evaluation.context", "update.max_sequence"):
        limit = get(config, name)
        if limit <= longest:
            raise ConfigError(
                f"{name} is {limit}, which leaves no room after task.max_prompt_tokens = "
                f"{longest}: raise the first or lower the second"
            )


def _check_sft(config: Config) -> None:
    sft = config.sft
    rates = sft.learning_rates
    for rate in rates:
        if not math.isfinite(rate) or rate <= 0:
            raise ConfigError(
                f"sft.learning_rates has {rate}: each must be more than 0, such as 1e-5 3e-5"
            )
    twice = [rate for i, rate in enumerate(rates) if rate in rates[:i]]
    if twice:
        raise ConfigError(f"sft.learning_rates has {twice[0]} twice: name each rate once")
    off = (
        ("sft.path", sft.path is not None, "unset sft.path"),
        ("sft.epochs", sft.epochs == 0, "raise sft.epochs"),
    )
    for name, default in (("sft.learning_rates", ()), ("sft.select", "last")):
        for other, is_off, remedy in off:
            if get(config, name) != default and is_off:
                raise ConfigError(
                    f"{name} is {get(config, name)!r}, but {other} is {get(config, other)!r}, so "
                    f"there is no SFT to choose from: leave {name} out, or {remedy}"
                )


def _check_method(config: Config) -> None:
    for name, neutral, method in _OF_METHOD:
        if get(config, name) != neutral and config.algorithm in {*ALGORITHMS} - {method}:
            raise ConfigError(
                f"{name} is {get(config, name)}, but algorithm is {config.algorithm!r}: only "
                f"{method} has it; leave it at {neutral}, or set algorithm to {method}"
            )
    if config.checkpoint.keep_rollouts and config.algorithm in ("restem", "dpo_positive"):
        raise ConfigError(
            f"checkpoint.keep_rollouts is {config.checkpoint.keep_rollouts}, but algorithm is "
            f"{config.algorithm!r}, which is trained on the files of a round: leave it at 0"
        )
    if config.algorithm == "restem":
        _divides("restem.rounds", config.restem.rounds, "iterations", config.iterations)
