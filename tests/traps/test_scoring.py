"""Traps of scoring: empty rows, tokens like the filler, kept mass, sampler against scorer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.models import tiny
from tests.train.enumerable import MODEL, iterations, weights
from vinejax import policy
from vinejax.sampler import Settings
from vinejax.sampler.draw import draw
from vinejax.train import alarms, measures, scoring

_score = jax.jit(policy.score, static_argnames=("config", "keep_cache"))


@pytest.fixture(scope="module")
def scored():
    """Scores and cache of three rows, the second without a token, the third of fillers."""
    config, params = tiny(layers=1)
    tokens = np.array([[5, 6, 7, 8], [9, 9, 9, 9], [5, 0, 0, 0]], np.int32)
    decode_weights = policy.unstack(params, config)
    length = np.array([4, 0, 3], np.int32)
    logits = policy.forward(params, config, tokens)
    return *_score(decode_weights, config, tokens, length, 0.6, keep_cache=True), logits


def test_a_row_without_tokens_scores_0_and_is_finite(scored):
    scores, (keys, values), _ = scored
    assert_array_equal(scores.logp[1], 0)
    assert_array_equal(scores.entropy[1], 0)
    assert np.asarray(scores.finite).all()
    for cells in (*keys, *values):
        assert_array_equal(cells[1], 0)
    assert (np.asarray(scores.logp)[0, 1:] < 0).all()


def test_sampled_tokens_that_equal_the_filler_are_scored(scored):
    scores, _, logits = scored
    expected = jax.nn.log_softmax(logits[2] / 0.6)[jnp.arange(2), 0]
    assert_allclose(scores.logp[2], [0, *expected, 0], atol=1e-5)
    assert (np.asarray(scores.logp)[2, 1:3] < 0).all()


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_the_ratio_of_full_to_drawn_probability_is_the_kept_mass(top_p):
    """At T = 0.6: the size of the step that a scorer makes which knows nothing of the nucleus."""
    logits = np.random.default_rng(0).normal(size=24) * 1.5
    probs = np.sort(np.exp(logits / 0.6) / np.exp(logits / 0.6).sum())[::-1]
    kept = probs[: np.searchsorted(probs.cumsum(), top_p) + 1].sum()
    rows = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (64, 24))
    out = draw(rows, jnp.linspace(0, 1, 64, endpoint=False), Settings(0.6, top_p), 24)
    assert_allclose(jnp.exp(out.logprob_full - out.logprob), kept, rtol=1e-5)
    assert top_p <= kept < 1


def of_iteration(old=None):
    """Metrics of an iteration, with other scores if given."""
    _, ((batch, given),) = iterations(count=1)
    if old is not None:
        given = type(given)(**vars(given) | {"old": old})
    return batch, measures.of_iteration(batch, given, {"tokens": 1.0}, 0)


def test_the_kept_mass_of_an_iteration_is_reported():
    _, numbers = of_iteration()
    assert 0.9 <= numbers["kept_mass"] < 1  # top_p is 0.9


def test_a_scorer_at_another_temperature_is_told_and_the_right_one_is_not():
    batch, numbers = of_iteration()
    assert "sampler and scorer" not in alarms.ringing(numbers)
    width = max(len(t) for t in batch.tokens)
    hot, _ = scoring.score(weights(), MODEL, batch.tokens, 1.0, width, keep_cache=False)
    _, numbers = of_iteration(hot)
    assert "sampler and scorer" in alarms.ringing(numbers)


@pytest.mark.parametrize(
    ("mean", "largest", "is_told"),
    [(0.01, 0.4, False), (0.03, 0.4, True), (0.01, 0.6, True), (float("nan"), 0.0, True)],
)
def test_the_gap_has_a_threshold_in_mean_and_maximum(mean, largest, is_told):
    numbers = {"sampler_scorer_gap": mean, "sampler_scorer_gap_max": largest, "reward": 0.5}
    assert bool(alarms.ringing(numbers)) == is_told
