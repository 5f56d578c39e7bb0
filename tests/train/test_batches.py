"""Packing: sequences that share rows are trained and scored as if each had its own."""

from dataclasses import fields
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.models import tiny
from vinejax import policy, update
from vinejax.sampler.bank import groups
from vinejax.train import batches, scoring

LENGTHS = np.array([30, 9, 12, 5, 17, 8, 8, 26], np.int32)
PROMPTS = np.array([4, 3, 5, 2, 6, 7, 3, 25])


def rows(seed=0):
    """Padded arrays of eight sequences with random numbers at every token."""
    rng = np.random.default_rng(seed)
    sequences = [rng.integers(3, 20, n).astype(np.int32) for n in LENGTHS]
    made = batches.padded(sequences, PROMPTS.tolist())
    shape = made["tokens"].shape
    columns = ("advantages", "old_logp", "ref_logp")
    return made | {name: rng.normal(size=shape).astype(np.float32) - 2 for name in columns}


def together(made, most=8, devices=1):
    width = made["tokens"].shape[1]
    return batches.packed(made, batches.place(made["length"], width, most, devices))


def test_a_packed_minibatch_makes_the_same_update():
    config, params = tiny()
    hyper = update.Hyper(config, update.Optimizer(1e-2, 10), microbatch=8)
    one, shared = rows(), together(rows())
    assert len(shared["tokens"]) == 4 < len(one["tokens"])
    results = []
    for batch in (update.Batch(**one), update.Batch(**shared)):
        state, metrics = update.step(update.init(params, hyper), batch, hyper)
        results.append((state.params, metrics))
    (expected, plain), (params, packed) = results
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=2e-5), expected, params)
    for field in fields(plain):
        a, b = getattr(plain, field.name), getattr(packed, field.name)
        assert_allclose(a, b, rtol=2e-4, atol=1e-6, err_msg=field.name)
    assert plain.sequences == 8


@pytest.mark.slow
def test_a_packed_minibatch_makes_the_same_update_of_a_critic():
    config, params = tiny()
    hyper = update.CriticHyper(config, update.Optimizer(1e-2, 10), microbatch=8)
    made = rows()
    made = {n: made[n] for n in ("tokens", "length", "is_response")} | {
        "returns": made["advantages"],
        "old_values": made["old_logp"],
    }
    shared = together(made)
    del shared["at"]
    step = update.make_critic_step(hyper).step
    outs = []
    for batch in (update.CriticBatch(**made), update.CriticBatch(**shared)):
        state, metrics = step(update.init_critic(params, hyper, jax.random.key(0)), batch)
        outs.append((state.params, metrics.loss))
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=2e-5), *outs)


@pytest.mark.parametrize("keep_cache", [False, True])
def test_scores_do_not_depend_on_what_shares_a_row_or_a_group(keep_cache, monkeypatch):
    config, params = tiny()
    weights = policy.unstack(params, config)
    made = rows()
    sequences = [row[:n] for row, n in zip(made["tokens"], LENGTHS, strict=True)]
    monkeypatch.setattr("vinejax.sampler.bank.TOKENS", 64)
    found, cache = scoring.score(weights, config, sequences, 0.6, 30, keep_cache, PROMPTS.tolist())
    length = jnp.asarray(LENGTHS)
    alone, own = jax.jit(partial(policy.score, config=config, keep_cache=True))(
        weights, tokens=made["tokens"], length=length, temperature=0.6
    )
    for m, tokens in enumerate(sequences):
        response = slice(PROMPTS[m], LENGTHS[m])
        for name in ("logp", "entropy"):
            row = getattr(found, name)[m]
            assert_allclose(row[response], getattr(alone, name)[m, response], atol=1e-5)
            assert not row[: PROMPTS[m]].any()
            assert not row[LENGTHS[m] :].any()
        if keep_cache:
            cells = len(tokens)
            for kept, expected in zip(cache[0], own[0], strict=True):
                assert_allclose(kept[m, :, :, :cells], expected[m, :, :, :cells], atol=1e-5)
                assert_array_equal(kept[m, :, :, cells:], 0)
            for kept, expected in zip(cache[1], own[1], strict=True):
                assert_allclose(kept[m, :, :cells], expected[m, :, :cells], atol=1e-5)
    assert found.tokens == LENGTHS.sum()
    assert found.processed < LENGTHS.size * 32


@given(st.lists(st.integers(1, 50), min_size=1, max_size=80), st.sampled_from([1, 2, 4]))
def test_every_sequence_has_a_place_of_its_own(lengths, devices):
    length = np.array(lengths, np.int32)
    placed = batches.place(length, 50, most=16, devices=devices)
    taken = np.zeros((placed.rows, 50), int)
    for row, begin, n in zip(placed.row, placed.begin, length, strict=True):
        assert begin + n <= 50
        taken[row, begin : begin + n] += 1
    assert taken.max() == 1
    assert placed.rows <= 16 or placed.rows % 16 == 0 or placed.rows == len(length)


def test_padding_is_under_15_percent_of_what_an_update_and_a_scoring_pass_process():
    """Lengths as a run on MATH has them: a prompt and a log-normal response, some cut off."""
    rng = np.random.default_rng(0)
    response = np.minimum(np.exp(rng.normal(5.4, 0.6, 512)).astype(int), 1024)
    length = (response + rng.integers(60, 250, 512)).astype(np.int32)
    width = 1280
    config, _ = tiny()
    processed = sum(
        batches.place(length[part : part + 64], width, most=64).rows * width
        for part in range(0, 512, 64)
    )
    assert 1 - length.sum() / processed < 0.15
    scored = sum(g.rows * g.width for g in groups(length, config, width))
    assert 1 - length.sum() / scored < 0.15
