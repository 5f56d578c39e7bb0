"""What a run needs before it starts: task, tokenizer, policy, layouts. Bad input ends here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from vinejax import policy, rng, sampler, sharding, tasks
from vinejax.config import Config, UserError
from vinejax.stop import StopTable
from vinejax.tasks import Problem, Task
from vinejax.tokenizer import Tokenizer, load_tokenizer
from vinejax.train import algorithms, fit, folder
from vinejax.train.shards import Shards


@dataclass(frozen=True)
class Prompted:
    """A problem and the tokens of its prompt."""

    problem: Problem
    tokens: np.ndarray  # int32, beginning-of-sequence token included


@dataclass(frozen=True)
class Setup:
    """What does not change during a run."""

    config: Config  # whatever it leaves to be chosen is chosen (`fit`)
    task: Task
    tokenizer: Tokenizer
    model: policy.LlamaConfig
    mesh: Mesh
    left_out: int  # training problems whose prompt is longer than task.max_prompt_tokens

    train: Sequence[Prompted]
    validation: Sequence[Prompted]
    test: Sequence[Prompted]

    @cached_property
    def shards(self) -> Shards:
        """The devices that sample and score."""
        return Shards.of(self.mesh)

    @cached_property
    def stop(self) -> StopTable | None:
        """The automaton of the task's stop strings."""
        if not self.task.stop:
            return None
        return StopTable.build(self.task.stop, self.tokenizer.bytes_of_ids)

    def settings(self, temperature: float, top_p: float, top_k: int = 0) -> sampler.Settings:
        """Sampling settings with the run's rules for the end of a response."""
        return sampler.Settings(temperature, top_p, top_k, (self.tokenizer.eos_id,), self.stop)

    def budget(self, length: np.ndarray | int, most: np.ndarray | int, context: int) -> np.ndarray:
        """New tokens after a prefix of `length`: `most`, or what `context` leaves.

        The beginning-of-sequence token does not count against the context (authors).
        """
        bos = int(self.tokenizer.bos_id is not None)
        return np.clip(context - (np.asarray(length) - bos), 0, most).astype(np.int32)

    def layout(self, trunks: int, jobs_per_trunk: float, max_new_tokens: int) -> sampler.Layout:
        """The engine's layout for a phase with so many trunks at most on one device.

        It follows from the configuration, not from the data of an iteration, so that a phase is
        compiled once.
        """
        made = sampler.Layout.auto(trunks, jobs_per_trunk, max_new_tokens)
        return fit.layout_of(self.config.engine, made)

    @property
    def wave(self) -> int:
        """Trunks that a device holds at once: a whole number of prompts' trajectories."""
        samples = self.config.samples
        most = self.config.engine.wave or 512
        own = self.shards.most(self.config.prompts) * samples
        return min(own, max(1, most // samples) * samples)


def prepare(config: Config) -> tuple[Setup, policy.Params]:
    """The setup, and the parameters to start from. Raises UserError for all bad input."""
    config.validate(tasks.names(), algorithms.names())
    task = tasks.get(config.task.name, **config.task.arguments())
    tokenizer = find_tokenizer(config, task)
    splits = {name: _prompts(task, tokenizer, name) for name in ("train", "validation", "test")}
    most = config.task.max_prompt_tokens
    train = [p for p in splits["train"] if len(p.tokens) <= most]
    _check_prompts(config, train, splits)
    model, params = start_policy(config, tokenizer)
    config = fit.fit(config, model, fit.Machine.here()).config
    model = fit.model_of(config, model)
    mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    _check_mesh(config, mesh, model, params)
    evaluation = config.evaluation
    test_problems = evaluation.test_problems or evaluation.problems
    setup = Setup(
        config,
        task,
        tokenizer,
        model,
        mesh,
        left_out=len(splits["train"]) - len(train),
        train=train,
        validation=_subset(splits["validation"], evaluation.problems),
        test=_subset(splits["test"], test_problems),
    )
    return setup, params


def prepare_evaluation(config: Config, split: str) -> tuple[Setup, policy.Params]:
    """The setup to evaluate on one split, which is its `test`, on one device; and the parameters.

    Only that split is loaded. Raises UserError for bad input.
    """
    config.validate(tasks.names(), algorithms.names())
    task = tasks.get(config.task.name, **config.task.arguments())
    tokenizer = find_tokenizer(config, task)
    problems = _prompts(task, tokenizer, split)
    _check_held_out(config, split, problems)
    most = config.evaluation.problems
    if split == "test":
        most = config.evaluation.test_problems or most
    return _on_one_device(config, task, tokenizer, _subset(problems, most))


def prepare_policy(config: Config) -> tuple[Setup, policy.Params]:
    """The setup of a policy by itself, without problems, on one device; and the parameters.

    Raises UserError for bad input.
    """
    config.validate(tasks.names(), algorithms.names())
    task = tasks.get(config.task.name, **config.task.arguments())
    return _on_one_device(config, task, find_tokenizer(config, task), [])


def _on_one_device(
    config: Config, task: Task, tokenizer: Tokenizer, test: Sequence[Prompted]
) -> tuple[Setup, policy.Params]:
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    model, params = start_policy(config, tokenizer)
    return Setup(config, task, tokenizer, model, mesh, 0, [], [], test), params


def _check_attention(config: Config) -> None:
    """Raises UserError for an attention that the devices do not have."""
    platform, dtype = policy.platform(), compute_dtype(config)
    asked = {"policy": config.policy.attention, "engine": config.engine.attention}
    for section, backend in asked.items():
        where = {"cudnn": "gpu", "splash": "tpu"}.get(backend, platform)
        if where != platform:
            raise UserError(
                f"{section}.attention is {backend!r}, which runs on a {where}, but the devices are "
                f"{platform}: leave it as it is by default"
            )
        if backend == "cudnn" and dtype != "bfloat16":
            raise UserError(
                f"{section}.attention is 'cudnn', which computes in half precision, but "
                f"policy.compute_dtype is {dtype}: set it to bfloat16"
            )


def compute_dtype(config: Config) -> str:
    """The type of matrix products: `auto` is bfloat16 on accelerators and float32 on CPU."""
    if config.policy.compute_dtype != "auto":
        return config.policy.compute_dtype
    return "float32" if policy.platform() == "cpu" else "bfloat16"


def find_tokenizer(config: Config, task: Task) -> Tokenizer:
    """That of `policy.tokenizer`, else of the model on disk, else the task's own."""
    if config.policy.tokenizer is not None:
        _check_folder("policy.tokenizer", config.policy.tokenizer)
        return load_tokenizer(config.policy.tokenizer)
    source, revision = _source(config)
    if source is not None:
        return load_tokenizer(source, revision)
    own = task.tokenizer()
    if own is None:
        raise UserError(
            f"task {task.name} brings no tokenizer: set policy.tokenizer or policy.path"
        )
    return own


def start_policy(config: Config, tokenizer: Tokenizer) -> tuple[policy.LlamaConfig, policy.Params]:
    """The model and its parameters before any training: read from disk, or random."""
    _check_attention(config)
    source, revision = _source(config)
    dtype = compute_dtype(config)
    if source is not None:
        model, params = policy.load_hf(source, compute_dtype=dtype, revision=revision)
        if tokenizer.vocab_size > model.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} ids, but the embedding of {source} has "
                f"{model.vocab_size} rows: policy.tokenizer belongs to another model, "
                "give the model's own"
            )
    else:
        model = random_model(config, tokenizer, dtype)
        params = policy.init(model, rng.fold_name(rng.key(config.seed), "initialisation"))
    # In place, XLA:CPU updates a cache in fp32 only; a bfloat16 one is converted at every step.
    model = replace(
        model,
        num_tokens=tokenizer.vocab_size,
        remat="block" if config.policy.remat == "auto" else config.policy.remat,
        kv_dtype="float32" if policy.platform() == "cpu" else None,
    )
    return with_attention(config, model), params


def with_attention(config: Config, model: policy.LlamaConfig) -> policy.LlamaConfig:
    """The model with the implementations of attention that are asked for, or the platform's own."""
    backend = config.policy.attention
    if backend == "auto":
        backend = policy.default_backend(policy.platform(), model.compute_dtype)
    model = replace(model, attention=backend)
    decoding = config.engine.attention
    if decoding == "auto":
        decoding = sampler.decode_attention(model)
    return replace(model, decode_attention=decoding)


def _source(config: Config) -> tuple[str | None, str | None]:
    """Path or hub id of the model to start from, and its revision; None = random."""
    if config.sft.path is not None:
        _check_folder("sft.path", config.sft.path)
        return config.sft.path, None
    if config.policy.path is not None:
        _check_folder("policy.path", config.policy.path)
    return config.policy.path, config.policy.revision


def _check_folder(field: str, path: str) -> None:
    if not Path(path).expanduser().exists() and not policy.is_hub_id(path):
        raise UserError(
            f"{field} is {path!r}: there is no such folder; "
            "give a Hugging Face model folder or a hub id like owner/name"
        )


def random_model(config: Config, tokenizer: Tokenizer, dtype: str) -> policy.LlamaConfig:
    """The model of `policy.architecture`."""
    shape = config.policy.architecture
    assert shape is not None, "validate() sees to it"
    return policy.LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        tied=shape.tied,
        rope_theta=shape.rope_theta,
        norm_eps=shape.norm_eps,
        max_positions=config.update.max_sequence,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        compute_dtype=dtype,
    )


def _prompts(task: Task, tokenizer: Tokenizer, split: str) -> list[Prompted]:
    problems = task.load(split)
    tokens = [tokenizer.encode(task.prompt(p), bos=True) for p in problems]
    return [Prompted(p, np.array(t, np.int32)) for p, t in zip(problems, tokens, strict=True)]


def _subset(problems: list[Prompted], count: int) -> list[Prompted]:
    """`count` problems, the same ones in every run of the task; all of them if there are fewer."""
    if count >= len(problems):
        return problems
    chosen = np.random.default_rng(0).permutation(len(problems))[:count]
    return [problems[i] for i in sorted(chosen)]


def _check_prompts(
    config: Config, train: list[Prompted], splits: dict[str, list[Prompted]]
) -> None:
    if len(train) < config.prompts:
        raise UserError(
            f"prompts is {config.prompts}, but only {len(train)} of {len(splits['train'])} "
            "training problems have prompts of at most task.max_prompt_tokens = "
            f"{config.task.max_prompt_tokens} tokens: lower the first or raise the second"
        )
    for name in ("validation", "test"):
        _check_held_out(config, name, splits[name])


def _check_held_out(config: Config, name: str, problems: list[Prompted]) -> None:
    """A split that is to be evaluated."""
    if not problems:
        raise UserError(
            f"task {config.task.name} has no {name} problem: give it more data (task.path), "
            f"or raise task.options.{name}_size if it has that"
        )
    longest = max(len(p.tokens) for p in problems)
    if longest >= config.evaluation.context:
        raise UserError(
            f"evaluation.context is {config.evaluation.context}, "
            f"but a {name} prompt has {longest} tokens: raise it"
        )


def _check_mesh(
    config: Config, mesh: Mesh, model: policy.LlamaConfig, params: policy.Params
) -> None:
    """What the updates split over devices must divide."""
    if folder.iterations(config):
        sharding.check_batch(config.update.microbatch, mesh, "update.microbatch")
    if folder.fine_tunes(config):
        sharding.check_batch(config.sft.microbatch, mesh, "sft.microbatch")
    placed = sharding.shardings(mesh, policy.logical_axes(model))
    sharding.check_divides(params, placed, "params")
