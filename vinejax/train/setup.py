"""What a run needs before it starts: task, problems, mesh, layouts. Bad input ends here."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import numpy as np
from jax.sharding import Mesh

from vinejax import policy, rng, sampler, sharding, tasks
from vinejax.config import Config
from vinejax.stop import StopTable
from vinejax.tasks import Problem, Task, lengths
from vinejax.tokenizer import Tokenizer
from vinejax.train import algorithms, fit, folder
from vinejax.train.shards import Shards
from vinejax.train.start import find_tokenizer, start_model, start_params, start_policy


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
    lengths.check_train(config, _lengths(splits["train"]))
    for name in ("validation", "test"):
        lengths.check_held_out(config, name, _lengths(splits[name]))
    model = start_model(config, tokenizer)
    config = fit.fit(config, model, fit.Machine.here()).config
    model = fit.model_of(config, model)
    mesh = sharding.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    _check_mesh(config, mesh, model)
    params = start_params(config, model, mesh)
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
    lengths.check_held_out(config, split, _lengths(problems))
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


def _prompts(task: Task, tokenizer: Tokenizer, split: str) -> list[Prompted]:
    problems = task.load(split)
    tokens = [tokenizer.encode(task.prompt(p), bos=True) for p in problems]
    return [Prompted(p, np.array(t, np.int32)) for p, t in zip(problems, tokens, strict=True)]


def _lengths(problems: Sequence[Prompted]) -> list[int]:
    return [len(problem.tokens) for problem in problems]


def _subset(problems: list[Prompted], count: int) -> list[Prompted]:
    """`count` problems, the same ones in every run of the task; all of them if there are fewer."""
    if count >= len(problems):
        return problems
    chosen = np.random.default_rng(0).permutation(len(problems))[:count]
    return [problems[i] for i in sorted(chosen)]


def _check_mesh(config: Config, mesh: Mesh, model: policy.LlamaConfig) -> None:
    """What the updates split over devices must divide."""
    if folder.iterations(config):
        sharding.check_batch(config.update.microbatch, mesh, "update.microbatch")
    if folder.fine_tunes(config):
        sharding.check_batch(config.sft.microbatch, mesh, "sft.microbatch")
    placed = sharding.shardings(mesh, policy.logical_axes(model))
    sharding.check_divides(
        jax.eval_shape(partial(policy.init, model), rng.key(0)), placed, "params"
    )
