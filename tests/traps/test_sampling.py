"""Traps of sampling: caches, keys, ends, budgets, and how many programs are compiled."""

import inspect
from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from experiments import configs
from tests.models import tiny
from tests.train.enumerable import CONFIG, Characters, Majority, setup_of
from vinejax import policy, sampler
from vinejax.arrays import Finish
from vinejax.config import TaskConfig
from vinejax.sampler import Jobs, Layout, Settings, Trunks, bucket, engine, schedule, tables
from vinejax.sampler.bank import empty_bank
from vinejax.tasks import Problem
from vinejax.train.setup import prepare

KEY = jax.random.key(7)
LAYOUT = Layout(rows=2, slots=2, ring=16)


@pytest.fixture(scope="module")
def model():
    config, params = tiny(layers=1)
    return config, policy.unstack(params, config)


def test_fresh_caches_are_zero_in_every_cell(model):
    """0 x NaN is NaN: a mask does not help against values in memory that nothing has written."""
    config, _ = model
    queue = tables.queue(np.zeros(4, int), 4)
    state = schedule.init(config, LAYOUT, 16, queue)
    for leaf in jax.tree.leaves((state.trunks, state.ring, empty_bank(config, 4, 16))):
        assert leaf.size
        assert_array_equal(leaf, 0)


def test_sampling_leaves_the_cache_that_it_is_given_as_it_was(model):
    """Siblings share a trunk: what one of them writes, no other may see, now or in a later call."""
    config, weights = model
    trunks = Trunks.of([[5, 6, 7, 8], [9, 10, 11]])
    _, cache = policy.score(weights, config, trunks.padded(2, 16), trunks.length, keep_cache=True)
    before = jax.tree.map(np.array, cache)
    jobs = Jobs.of([0] * 6 + [1] * 3, [2, 2, 4, 4, 3, 3, 3, 1, 1], [0, 1, 2] * 3, 10)
    first, second = (
        sampler.sample(
            weights, config, trunks, jobs, Settings(2.0), KEY, layout=LAYOUT, cache=cache
        )
        for _ in range(2)
    )
    assert_array_equal(first.tokens, second.tokens)
    jax.tree.map(assert_array_equal, cache, before)


def test_the_loop_ends_when_every_row_has_ended(model):
    """Every token ends its sample here, so 8 jobs in 4 slots take 2 steps, not their budgets."""
    config, weights = model
    trunks = Trunks.of([[5, 6], [7, 8]])
    jobs = Jobs.at_ends(trunks, 4, 16)
    every = Settings(1.0, eos_ids=tuple(range(config.vocab_size)))
    out = sampler.sample(weights, config, trunks, jobs, every, KEY, layout=LAYOUT)
    assert (out.finish == Finish.EOS).all()
    assert (out.length == 1).all()
    assert out.counters.steps == 2


def test_there_is_no_sampling_without_a_key_or_a_seed():
    """A seed that defaults to None or 0 inside the sampler gives equal samples silently."""
    assert inspect.signature(sampler.sample).parameters["key"].default is inspect.Parameter.empty


def test_random_numbers_of_samples_nodes_and_positions_are_uncorrelated():
    """Neighbours in each of the three directions: K samples, the next prefix, the next token."""
    nodes, samples, length = 40, 9, 40
    trunks = Trunks.of([[5, node] for node in range(nodes)])
    jobs = Jobs.at_ends(trunks, samples, length)
    keys = tables.table(trunks, jobs, Settings(), KEY, len(jobs)).key
    every = np.repeat(np.arange(len(jobs)), length)
    drawn = engine._uniforms(keys[every], np.tile(np.arange(length), len(jobs)))
    drawn = np.asarray(drawn).reshape(nodes, samples, length)
    assert len(np.unique(drawn)) > 0.998 * drawn.size  # 2^23 values: some meet by chance
    assert abs(drawn.mean() - 0.5) < 4 * (1 / 12 / drawn.size) ** 0.5
    for axis in range(3):
        first = np.take(drawn, range(drawn.shape[axis] - 1), axis).ravel()
        second = np.take(drawn, range(1, drawn.shape[axis]), axis).ravel()
        assert abs(np.corrcoef(first, second)[0, 1]) < 4 / first.size**0.5


def test_lengths_fall_into_few_buckets_with_little_padding():
    widths = [bucket(n) for n in range(1, 4097)]
    assert all(width >= n for n, width in enumerate(widths, 1))
    assert widths == sorted(widths)
    assert len(set(widths)) <= 24
    assert all(width < max(n + 16, 1.5 * n) for n, width in enumerate(widths, 1))
    assert all(bucket(width) == width for width in widths)


def test_ragged_lengths_of_one_bucket_compile_one_program(model, compiles):
    config, weights = model
    settings = Settings(1.0)

    def run(lengths, seed):
        rng = np.random.default_rng(seed)
        trunks = Trunks.of([rng.integers(3, 40, size=n) for n in lengths])
        jobs = Jobs.at_ends(trunks, 2, rng.integers(1, 9, size=len(lengths)))
        sampler.sample(weights, config, trunks, jobs, settings, KEY, layout=LAYOUT)

    run([16, 3, 9, 1], 0)
    before = compiles.count
    for seed, lengths in enumerate([[2, 2, 2, 2], [15, 16, 1, 7], [5, 11, 14]], 1):
        run(lengths, seed)
    assert compiles.count == before


@pytest.mark.parametrize(
    ("length", "new_tokens"), [(1, 4), (5, 4), (6, 3), (8, 1), (9, 0), (10, 0), (99, 0)]
)
def test_a_budget_ends_at_the_context_and_is_never_negative(length, new_tokens):
    """4 new tokens in a context of 8; BOS is in `length` and does not count against it."""
    setup = setup_of()
    assert setup.budget(length, 4, 8) == new_tokens
    assert setup.budget(np.array([length]), np.array([4]), 8).tolist() == [new_tokens]


class Ragged(Majority):
    """Prompts of 1 to 6 characters."""

    name = "ragged"

    def load(self, split):
        return [Problem(id=str(n), problem="01" * 3, solution="0", answer="0") for n in range(6)]

    def prompt(self, problem):
        return problem.problem[: int(problem.id) + 1]

    def tokenizer(self):
        return Characters()


def test_a_prompt_over_the_limit_is_left_out_and_counted_and_none_is_cut():
    task = TaskConfig(name=f"{__name__}:Ragged", max_prompt_tokens=5)
    architecture = replace(configs.get("tiny").policy, compute_dtype="float32")
    update = replace(CONFIG.update, microbatch=8, max_sequence=16)
    evaluation = replace(CONFIG.evaluation, problems=2, context=16)
    config = replace(
        CONFIG, task=task, policy=architecture, update=update, evaluation=evaluation, prompts=2
    )
    setup, _ = prepare(config)
    assert setup.left_out == 2  # BOS and 5 or 6 characters
    assert [len(p.tokens) for p in setup.train] == [2, 3, 4, 5]
    texts = [setup.tokenizer.decode(p.tokens.tolist()) for p in setup.train]
    assert texts == [setup.task.prompt(p.problem) for p in setup.train]
