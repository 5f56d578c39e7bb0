"""The configuration of a run: frozen records, the rules between their fields, and their JSON form.

Defaults are the numbers of the VinePPO paper (arXiv 2410.01679) and its authors' code for RhoMath
1.1B on MATH; files in `experiments/configs` change what differs. The comment of a field is also
its help text on the command line. Lengths are in tokens, batch sizes in sequences, time in seconds.
This module knows nothing of JAX, of files, or of what the tasks do: it checks what can be known
before anything is loaded.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


class UserError(Exception):
    """The run cannot start or go on, for a reason that the message names with its remedy."""


class ConfigError(UserError, ValueError):
    """A configuration field that is unknown, of the wrong type, or at odds with another one."""


class Preempted(Exception):
    """The machine asked the run to stop; it has saved a checkpoint and can be resumed."""


ALGORITHMS = ("vineppo", "sft")
PLANNED_ALGORITHMS = ("ppo", "grpo", "rloo", "restem", "dpo_positive")
TASKS = ("ledger", "gsm8k")
PLANNED_TASKS = ("math",)


@dataclass(frozen=True)
class Architecture:
    """A Llama decoder to be initialised at random; a model on disk brings its own."""

    hidden: int = 96  # Width of the residual stream.
    layers: int = 2  # Decoder blocks.
    heads: int = 4  # Query heads.
    kv_heads: int = 2  # Key/value heads; divides heads.
    head_dim: int = 24  # Size of one head; even, because rotary embeddings turn pairs.
    ffn: int = 256  # Inner width of the SwiGLU layer.
    tied: bool = False  # Output head shares the embedding matrix.
    rope_theta: float = 10000.0  # Base of the rotary frequencies (Llama 2).
    norm_eps: float = 1e-5  # Added to the mean square in RMSNorm (Llama 2).


@dataclass(frozen=True)
class PolicyConfig:
    """Where the policy's weights come from, and the precision it computes in."""

    path: str | None = None  # Hugging Face folder or hub id; None = random from architecture.
    revision: str | None = None  # Commit of the hub repository; None = its newest.
    tokenizer: str | None = None  # Folder or hub id; None = the task's own, else policy.path.
    architecture: Architecture | None = None  # Shape of a randomly initialised policy.
    # Matrix products: auto = bfloat16 on accelerators, float32 on CPU. Master weights are float32.
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    remat: bool = True  # Recompute a block's activations in the backward pass (the authors do).


@dataclass(frozen=True)
class LedgerOptions:
    """The embedded task: running arithmetic modulo 10, demonstrated with wrong facts."""

    seed: int = 1000  # Chooses the sloppy facts and generates all problems.
    length: int = 8  # Facts of a problem, one a reasoning step.
    sloppy: float = 0.4  # Share of the facts that demonstrations get wrong at times.
    wrong: float = 0.5  # Probability that a demonstration states a sloppy fact wrongly.
    operators: str = "+-*"  # Operators to draw from.
    sft_size: int = 4000  # Problems with demonstrations, for SFT.
    train_size: int = 2000  # Problems for reinforcement learning.
    validation_size: int = 128  # Problems that choose the best iteration.
    test_size: int = 256  # Problems for the final table.


@dataclass(frozen=True)
class Gsm8kOptions:
    """GSM8K: 7,100 training, 373 validation and 1,319 test problems."""

    hub: str = "openai/gsm8k"  # Hub id, used when task.path is None.
    split_seed: int = 0  # Chooses the validation problems out of the published train part.
    # Commas in gold answers: authors keeps them (such problems can't be solved), clean drops them.
    gold_commas: Literal["authors", "clean"] = "authors"


@dataclass(frozen=True)
class MathOptions:
    """MATH in the split of the paper: 11,500 training, 500 validation and 500 test problems."""

    hub: str | None = None  # Hub id, used when task.path is None.


TaskOptions = LedgerOptions | Gsm8kOptions | MathOptions
OPTIONS: dict[str, type[TaskOptions]] = {
    "ledger": LedgerOptions,
    "gsm8k": Gsm8kOptions,
    "math": MathOptions,
}


@dataclass(frozen=True)
class TaskConfig:
    """Which problems, and the rules that belong to them."""

    name: str = "math"  # ledger, gsm8k, math, or your own as module:Class.
    path: str | None = None  # Folder with the data files; None = the hub, or generated.
    options: TaskOptions | None = None  # What only this task has; None for your own task.
    steps: Literal["authors", "paper"] = "authors"  # Rule that cuts a solution into steps (math).
    max_prompt_tokens: int = 1512  # Longer training prompts are left out (authors).

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for `tasks.get(name, **arguments)`: plain data that pickles."""
        chosen = {} if self.options is None else dataclasses.asdict(self.options)
        if self.path is not None:
            chosen["path"] = self.path
        if self.name == "math":
            chosen["steps"] = self.steps
        return chosen


@dataclass(frozen=True)
class SamplingConfig:
    """How trajectories are drawn; value rollouts use the same temperature, top-p and top-k."""

    temperature: float = 0.6  # Divides the logits, also in the loss; 0 = greedy (paper: 0.6).
    top_p: float = 0.9  # Nucleus mass; 1 = off (paper: 0.9).
    top_k: int = 0  # Keep the k most probable tokens; 0 = off.
    max_new_tokens: int = 1024  # Budget of a trajectory, and of a rollout from where it starts.
    context: int = 2047  # Prompt + response of a trajectory (2047 RhoMath, 4095 DeepSeekMath).


@dataclass(frozen=True)
class ValuesConfig:
    """Monte Carlo values: which states, and how many rollouts from each."""

    k: int = 9  # Rollouts from every state (paper: 9; its ablation has 1, 3, 9).
    states: str = "step"  # Which states: step, token, or every:N (every N tokens).
    deduplicate: bool = True  # Equal prefixes share one estimate (authors: on).
    context: int = 2047  # Prefix + rollout (2047 RhoMath, 2499 DeepSeekMath).
    max_step: int | None = None  # Later steps copy the return (gsm8k: 25); None = no cap.


@dataclass(frozen=True)
class AdvantagesConfig:
    """From values to one number a token."""

    whiten: bool = True  # Zero mean and unit variance over the minibatch's response tokens (paper).
    permute: bool = False  # Ablation: shuffle the step advantages within each response.


@dataclass(frozen=True)
class UpdateConfig:
    """PPO and its optimizer (paper, appendix C; authors' ppo_MATH.jsonnet)."""

    epochs: int = 2  # Passes over an iteration's trajectories.
    minibatch: int = 64  # Sequences in one optimizer step, over all devices.
    microbatch: int = 64  # Sequences in one backward pass, over all devices; the sum is exact.
    learning_rate: float = 1e-6  # Peak.
    warmup_ratio: float = 0.03  # Share of all optimizer steps.
    # Shape of the warm-up; DeepSpeed's WarmupDecayLR, which the authors use, is logarithmic.
    warmup: Literal["logarithmic", "linear"] = "logarithmic"
    decay: Literal["linear", "constant"] = "linear"  # After the warm-up; linear ends at 0.
    b1: float = 0.9  # AdamW, decay of the first moment.
    b2: float = 0.999  # AdamW, decay of the second moment.
    eps: float = 1e-8  # AdamW, added to the root of the second moment.
    weight_decay: float = 0.0  # AdamW, decoupled.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to.
    clip: float = 0.2  # PPO clip range of the probability ratio.
    kl: float = 1e-4  # Coefficient of the KL (k3) to the SFT policy, summed over a sequence.
    kl_clamp: float = 10.0  # Upper bound of one token's KL, nats.
    ratio_guard: float = 10.0  # A minibatch whose mean ratio exceeds it makes no update.
    max_sequence: int = 2048  # Prompt + response, BOS and EOS included (DeepSeekMath: 2499).


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning before reinforcement learning (paper, appendix C.3)."""

    path: str | None = None  # Folder or hub id of a policy after SFT; replaces the SFT phase.
    epochs: float = 2.0  # Passes over the demonstrations; 0 = no SFT; a fraction is allowed.
    learning_rate: float = 1e-5  # Peak (1e-5 RhoMath, 5e-5 DeepSeekMath).
    batch: int = 64  # Sequences in one optimizer step.
    microbatch: int = 64  # Sequences in one backward pass.
    warmup_ratio: float = 0.03  # Share of all SFT steps, linear.
    decay: Literal["linear", "cosine"] = "linear"  # Linear ends at 0, cosine at a tenth.
    b1: float = 0.9  # AdamW, decay of the first moment.
    b2: float = 0.999  # AdamW, decay of the second moment.
    eps: float = 1e-8  # AdamW, added to the root of the second moment.
    weight_decay: float = 0.0  # AdamW, decoupled.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to.
    max_length: int = 2048  # Prompt + solution; longer demonstrations are left out.


@dataclass(frozen=True)
class EvaluationConfig:
    """Sampled accuracy: on validation while training, on test at the end."""

    every: int = 40  # Iterations between validations; 0 = only after SFT and at the end.
    problems: int = 500  # Validation problems, at most.
    test_problems: int | None = None  # Test problems, at most; None = as many as problems.
    samples: int = 16  # Responses to each problem (paper: 16).
    temperature: float = 0.35  # The paper's evaluation temperature.
    top_p: float = 0.9  # Nucleus mass.
    max_new_tokens: int = 1024  # Budget of a response.
    context: int = 2047  # Prompt + response (4095 for DeepSeekMath on MATH).


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk to resume from."""

    every: int = 10  # Iterations between checkpoints (authors: 10).
    keep: int = 2  # Newest checkpoints kept for resuming.
    keep_period: int = 0  # Also keep every N-th iteration's; 0 = none (authors: 40 or 60).


@dataclass(frozen=True)
class GradingConfig:
    """Rewards: worker processes that read answers."""

    grader: Literal["authors", "strict"] = "authors"  # The reward; the other one is only reported.
    limit: float = 15.0  # CPU seconds for one answer; beyond it the grade is 0.
    workers: int = 0  # Processes; 0 = one a core, at most 16.


@dataclass(frozen=True)
class MeshConfig:
    """Devices along each mesh axis."""

    data: int = -1  # Copies of the model; -1 = all devices that the other axes leave.
    fsdp: int = 1  # Shards of parameters and optimizer state.
    tensor: int = 1  # Shards of heads and vocabulary; divides the key/value heads.


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the sampling engine; 0 = chosen from device memory. They do not change samples."""

    rows: int = 0  # Trunks (prompts or trajectories) in the decode batch.
    slots: int = 0  # Continuations that one row decodes at a time.
    ring: int = 0  # Tokens of a continuation's own cache; a longer one is re-rooted.
    wave: int = 0  # Trunks that are scored and held at once.
    chunk: int = 0  # Time steps whose log-probabilities are computed at once.


@dataclass(frozen=True)
class Config:
    """One run. `experiments.configs` has named ones; `validate` before use."""

    name: str = "custom"  # Part of the default output folder.
    algorithm: str = "vineppo"  # vineppo, or sft (stops after supervised fine-tuning).
    seed: int = 0  # All randomness of the run derives from it (the task's data has its own seed).
    iterations: int = 1000  # Rounds of sampling and updating (1000 MATH, 650 GSM8K).
    prompts: int = 64  # Problems in an iteration.
    samples: int = 8  # Trajectories from each of them.
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    values: ValuesConfig = field(default_factory=ValuesConfig)
    advantages: AdvantagesConfig = field(default_factory=AdvantagesConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def validate(self, tasks: Collection[str] = TASKS) -> "Config":
        """Return self if a run could start from it; ConfigError names field, value and remedy.

        `tasks` are the names that exist; a name module:Class needs no registration.
        """
        validate(self, tasks)
        return self

    @property
    def episodes(self) -> int:
        """Trajectories in one iteration."""
        return self.prompts * self.samples

    @property
    def updates(self) -> int:
        """Optimizer steps of reinforcement learning in the whole run."""
        return self.iterations * self.update.epochs * (self.episodes // self.update.minibatch)


_POSITIVE = (lambda x: x > 0, "more than 0")
_AT_LEAST_0 = (lambda x: x >= 0, "0 or more")
_AT_LEAST_1 = (lambda x: x >= 1, "1 or more")
_SHARE = (lambda x: 0 <= x <= 1, "between 0 and 1")
_NUCLEUS = (lambda x: 0 < x <= 1, "more than 0 and at most 1 (1 = off)")
_MOMENT = (lambda x: 0 <= x < 1, "0 or more and less than 1")
_AXIS = (lambda x: x >= 1 or x == -1, "1 or more, or -1 for all devices that are left")

_RANGES: tuple[tuple[tuple[Callable[[Any], bool], str], str], ...] = (
    (
        _AT_LEAST_1,
        """prompts samples task.max_prompt_tokens sampling.max_new_tokens sampling.context values.k
        values.context update.epochs update.minibatch update.microbatch update.max_sequence
        sft.batch sft.microbatch sft.max_length evaluation.problems evaluation.test_problems
        evaluation.samples evaluation.max_new_tokens evaluation.context checkpoint.every
        checkpoint.keep mesh.fsdp mesh.tensor""",
    ),
    (
        _AT_LEAST_0,
        """seed iterations sampling.temperature sampling.top_k values.max_step update.weight_decay
        update.kl sft.epochs sft.weight_decay evaluation.every evaluation.temperature
        checkpoint.keep_period grading.workers
        engine.rows engine.slots engine.ring engine.wave engine.chunk""",
    ),
    (
        _POSITIVE,
        """update.learning_rate update.eps update.max_grad_norm update.clip update.kl_clamp
        update.ratio_guard sft.learning_rate sft.eps sft.max_grad_norm grading.limit""",
    ),
    (_SHARE, "update.warmup_ratio sft.warmup_ratio"),
    (_NUCLEUS, "sampling.top_p evaluation.top_p"),
    (_MOMENT, "update.b1 update.b2 sft.b1 sft.b2"),
    (_AXIS, "mesh.data"),
)
_ARCHITECTURE = "hidden layers heads kv_heads head_dim ffn"


def validate(config: Config, tasks: Collection[str] = TASKS) -> None:
    """Raise ConfigError for the first rule that `config` breaks; see `Config.validate`."""
    _check_names(config, tasks)
    for rule, names in _RANGES:
        for name in names.split():
            _check_range(config, name, rule)
    _check_policy(config)
    _check_options(config)
    every_n_tokens(config.values.states)
    _check_batches(config)
    _check_lengths(config)


def every_n_tokens(states: str) -> int | None:
    """Spacing in tokens of the states that get a value, or None for one a reasoning step.

    "step" -> None, "token" -> 1, "every:16" -> 16.
    """
    kind, colon, number = states.partition(":")
    if states == "step":
        return None
    if states == "token":
        return 1
    if kind == "every" and colon and number.isascii() and number.isdigit() and int(number) > 0:
        return int(number)
    raise ConfigError(
        f"values.states is {states!r}: it must be step, token or every:N with N >= 1 (every:16)"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """A clause for an error message: the closest known names, or all of them."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return (
        f"did you mean {' or '.join(close)}?"
        if close
        else f"choose from {', '.join(sorted(known))}"
    )


def _check_names(config: Config, tasks: Collection[str]) -> None:
    for label, value, known, planned in (
        ("algorithm", config.algorithm, ALGORITHMS, PLANNED_ALGORITHMS),
        ("task.name", config.task.name, tasks, PLANNED_TASKS),
    ):
        if value in known or (label == "task.name" and ":" in value):
            continue
        if value in planned:
            what = f"the {value.upper()} task" if label == "task.name" else f"the algorithm {value}"
            raise ConfigError(
                f"{label} is {value!r}: {what} is not available yet in this version; "
                f"available: {', '.join(sorted(known))}"
            )
        raise ConfigError(f"{label} is {value!r}, which does not exist; {nearest(value, known)}")
    if not config.name or "/" in config.name:
        raise ConfigError(
            f"name is {config.name!r}: it becomes a folder name, so it needs text without '/'"
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
    _divides("mesh.tensor", config.mesh.tensor, "policy.architecture.kv_heads", shape.kv_heads)
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
    _divides("update.microbatch", update.microbatch, "update.minibatch", update.minibatch)
    _divides("sft.microbatch", config.sft.microbatch, "sft.batch", config.sft.batch)
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


def get(config: Any, name: str) -> Any:
    """The value of a dotted field name, for example `update.learning_rate`."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every leaf field, in order of declaration."""
    for entry in dataclasses.fields(config):
        name, value = prefix + entry.name, getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            yield from flatten(value, name + ".")
        else:
            yield name, value


def to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dictionary that JSON can hold; `from_dict` is the inverse."""
    return dataclasses.asdict(config)


def from_dict(data: Mapping[str, Any]) -> Config:
    """Config of what `to_dict` (or its JSON) gave; a missing field takes its default.

    Raises ConfigError for an unknown field (with the nearest name) and for a wrong type.
    """
    return _build(Config, data, "")


def _build(cls: type, data: Any, prefix: str) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{prefix.rstrip('.') or 'config'} is {data!r}: it must be a group of fields"
        )
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in hints:
            raise ConfigError(f"unknown field {prefix}{name}; {nearest(str(name), list(hints))}")
    if cls is TaskConfig and isinstance(data.get("options"), Mapping):
        hints["options"] = OPTIONS.get(str(data.get("name", TaskConfig.name)), types.NoneType)
    return cls(**{name: _read(hints[name], value, prefix + name) for name, value in data.items()})


def _read(hint: Any, value: Any, name: str) -> Any:
    """`value` if it fits the field's type; an integer is read as a float where one is asked for."""
    options = [hint]
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        options = [option for option in hint.__args__ if option is not types.NoneType]
    for option in options:
        if dataclasses.is_dataclass(option):
            return _build(typing.cast(type, option), value, name + ".")
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(option, type) and type(value) is option:
            return value
    raise ConfigError(f"{name} is {value!r}: it must be {_describe(hint)}")


def _describe(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(option) for option in hint.__args__)
    if typing.get_origin(hint) is Literal:
        return " or ".join(typing.get_args(hint))
    return "null" if hint is types.NoneType else hint.__name__


def fingerprint(config: Config) -> str:
    """16 hexadecimal digits that name the resolved configuration."""
    data = to_dict(from_dict(to_dict(config)))  # 2 and 2.0 are the same rate
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# A resumed run may differ here: how long, how often, on which devices and in how much memory, but
# not in what is learned. (Mesh, engine and micro-batch sizes change rounding only.)
RESUME_MAY_CHANGE = (
    "iterations",
    "evaluation.every",
    "checkpoint.every",
    "checkpoint.keep",
    "checkpoint.keep_period",
    "grading.workers",
    "update.microbatch",
    "sft.microbatch",
    "policy.remat",
    "mesh",
    "engine",
)


def differences(old: Config, new: Config) -> tuple[str, ...]:
    """Fields that forbid resuming a run of `old` as `new`, each as "name: old -> new".

    `iterations` may change only while `update.decay` is constant: a linear decay ends at the last
    iteration, so another length would have had other learning rates from the start.
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    allowed = set(RESUME_MAY_CHANGE)
    if old.update.decay != "constant":
        allowed.remove("iterations")
    return tuple(
        f"{name}: {before.get(name)!r} -> {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and not allowed & {name, name.split(".")[0]}
    )
