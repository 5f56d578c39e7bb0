"""One draw: which tokens may come, how often, and with what log-probability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from vinejax.sampler import Settings
from vinejax.sampler import draw as drawing
from vinejax.sampler.draw import CANDIDATES, _largest

draw = jax.jit(drawing.draw, static_argnums=(2, 3))


def kept_set(logits, temperature, top_p, top_k):
    """The truncated distribution in NumPy: top-k first, then the nucleus of what is left."""
    scaled = np.asarray(logits, np.float64) / temperature
    order = np.argsort(-scaled, kind="stable")
    kept = order[: top_k or len(order)]
    probs = np.exp(scaled[kept] - scaled.max())
    probs /= probs.sum()
    before = np.cumsum(probs) - probs
    count = max(1, int((before < top_p).sum()))
    out = np.zeros(len(scaled))
    out[kept[:count]] = probs[:count] / probs[:count].sum()
    return out


def draws(logits, settings, count=10_000, num_tokens=None):
    """`count` draws with evenly spread uniforms, so that frequencies are exact up to 1 / count."""
    logits = jnp.asarray(logits, jnp.float32)
    uniforms = (np.arange(count) + 0.5) / count
    rows = jnp.broadcast_to(logits, (count, len(logits)))
    return draw(rows, jnp.asarray(uniforms, jnp.float32), settings, num_tokens or len(logits))


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 5])
def test_frequencies_are_the_truncated_softmax(temperature, top_p, top_k):
    logits = np.random.default_rng(0).normal(size=30) * 2
    expected = kept_set(logits, temperature, top_p, top_k)
    out = draws(logits, Settings(temperature, top_p, top_k))
    seen = np.bincount(np.asarray(out.token), minlength=30) / len(out.token)
    assert_allclose(seen, expected, atol=2e-4)
    token = np.asarray(out.token)
    assert_allclose(out.logprob, np.log(expected[token]), atol=1e-5)
    full = kept_set(logits, temperature, 1.0, 0)
    assert_allclose(out.logprob_full, np.log(full[token]), atol=1e-5)


def test_random_uniforms_pass_a_chi_square_test():
    logits = np.random.default_rng(1).normal(size=20)
    expected = kept_set(logits, 0.8, 0.9, 0)
    uniforms = jax.random.uniform(jax.random.key(0), (100_000,))
    rows = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (100_000, 20))
    seen = np.bincount(np.asarray(draw(rows, uniforms, Settings(0.8, 0.9), 20).token), minlength=20)
    alive = expected > 0
    assert seen[~alive].sum() == 0
    assert stats.chisquare(seen[alive], expected[alive] * 100_000).pvalue > 1e-4


@pytest.mark.parametrize("size", [CANDIDATES + 10, 700])
def test_a_nucleus_larger_than_the_candidates_is_drawn_exactly(size):
    logits = (
        np.random.default_rng(2).normal(size=size) * 0.1
    )  # nearly flat: most of the tokens are kept
    expected = kept_set(logits, 1.0, 0.95, 0)
    assert (expected > 0).sum() > CANDIDATES
    out = draws(logits, Settings(1.0, 0.95))
    seen = np.bincount(np.asarray(out.token), minlength=size) / len(out.token)
    assert_allclose(seen, expected, atol=4e-4)


@pytest.mark.parametrize("top_p", [0.3, 0.7, 0.999])
def test_a_large_nucleus_is_cut_inside_ties_at_the_lower_id(top_p):
    """Ten values for 1000 tokens, so the cut lies among equal ones; against a stable sort."""
    logits = np.random.default_rng(9).integers(0, 10, 1000) * 0.05
    expected = kept_set(logits, 1.0, top_p, 0)
    assert (expected > 0).sum() > CANDIDATES
    out = draws(logits, Settings(1.0, top_p), count=20_000)
    seen = np.bincount(np.asarray(out.token), minlength=len(logits))
    last = np.flatnonzero(expected)[-1]
    assert not seen[expected == 0].any()
    assert seen[last - 50 : last + 1].any()
    assert_allclose(np.exp(out.logprob), expected[np.asarray(out.token)], rtol=1e-4)


@pytest.mark.parametrize("size", [2048, 2050, 5000])
def test_candidates_from_groups_are_those_of_a_sort_with_ties_by_id(size):
    rng = np.random.default_rng(11)
    rows = [rng.normal(size=size), rng.integers(0, 40, size), np.zeros(size), np.arange(size)]
    scaled = jnp.asarray(np.stack(rows), jnp.float32)
    values, ids = _largest(scaled, CANDIDATES)
    expected = np.argsort(-np.asarray(scaled), axis=-1, kind="stable")[:, :CANDIDATES]
    assert_array_equal(ids, expected)
    assert_array_equal(values, np.take_along_axis(np.asarray(scaled), expected, axis=-1))


def test_a_draw_does_not_depend_on_the_rows_beside_it():
    rng = np.random.default_rng(3)
    sharp, flat = rng.normal(size=(8, 500)) * 8, rng.normal(size=(8, 500)) * 0.1
    uniforms = jnp.asarray(rng.uniform(size=8), jnp.float32)
    settings = Settings(1.0, 0.9)
    alone = draw(jnp.asarray(sharp, jnp.float32), uniforms, settings, 500)
    both = jnp.asarray(np.concatenate([sharp, flat]), jnp.float32)
    together = draw(both, jnp.concatenate([uniforms, uniforms]), settings, 500)
    for one, other in zip(alone, together, strict=True):
        assert_array_equal(one, other[:8])


@pytest.mark.parametrize("size", [512, 513, 4_003])
def test_the_untruncated_draw_over_a_large_vocabulary(size):
    logits = np.random.default_rng(4).normal(size=size) * 3
    out = draws(logits, Settings(1.0), count=5_000)
    expected = kept_set(logits, 1.0, 1.0, 0)
    seen = np.bincount(np.asarray(out.token), minlength=size) / 5_000
    assert_allclose(seen, expected, atol=5e-4)


def test_temperature_zero_takes_the_first_of_the_most_likely_with_certainty():
    out = draws([0.0, 3.0, 3.0, 1.0], Settings(0.0), count=16)
    assert_array_equal(out.token, 1)
    assert_array_equal(out.logprob, 0.0)
    assert_allclose(
        out.logprob_full, np.log(kept_set([0.0, 3.0, 3.0, 1.0], 1.0, 1.0, 0)[1]), rtol=1e-5
    )


def test_at_least_one_token_stays_however_small_the_nucleus():
    out = draws([0.0, 1.0, 0.5], Settings(1.0, 1e-6), count=64)
    assert_array_equal(out.token, 1)
    assert_allclose(out.logprob, 0.0, atol=1e-6)


def test_ties_at_the_cut_go_to_the_lower_id():
    out = draws([1.0, 1.0, 1.0, 1.0], Settings(1.0, 0.5), count=1000)
    assert set(np.asarray(out.token).tolist()) == {0, 1}


def test_top_k_beyond_the_vocabulary_and_top_p_one_cut_nothing():
    logits = np.random.default_rng(5).normal(size=12)
    for settings in (Settings(1.0, 1.0, 100), Settings(1.0, 1.0, 12), Settings(1.0)):
        seen = np.bincount(np.asarray(draws(logits, settings).token), minlength=12) / 10_000
        assert_allclose(seen, kept_set(logits, 1.0, 1.0, 0), atol=2e-4)


@pytest.mark.parametrize(
    "settings", [Settings(1.0), Settings(1.0, 0.9), Settings(0.0), Settings(1.0, 1.0, 3)]
)
def test_padding_rows_of_the_embedding_are_never_drawn_and_carry_no_probability(settings):
    logits = np.array([0.1, 0.2, 0.3, 50.0, 60.0])
    out = draws(logits, settings, count=500, num_tokens=3)
    assert np.asarray(out.token).max() < 3
    best = kept_set(logits[:3], 1.0, 1.0, 0)
    assert_allclose(out.logprob_full, np.log(best[np.asarray(out.token)]), atol=1e-5)


def test_the_nucleus_is_found_in_fp32_whatever_the_type_of_the_logits():
    logits = jnp.asarray(np.random.default_rng(6).normal(size=(200, 4000)) * 0.5, jnp.bfloat16)
    uniforms = jnp.linspace(0, 1, 200, endpoint=False)
    low = draw(logits, uniforms, Settings(1.0, 0.9), 4000)
    high = draw(logits.astype(jnp.float32), uniforms, Settings(1.0, 0.9), 4000)
    assert_array_equal(low.token, high.token)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_told(bad):
    logits = np.zeros((3, 8), np.float32)
    logits[1, 4] = bad
    for settings in (Settings(1.0), Settings(1.0, 0.9), Settings(0.0)):
        out = draw(jnp.asarray(logits), jnp.full(3, 0.5), settings, 8)
        assert_array_equal(out.is_finite, [True, False, True])


def test_settings_refuse_what_makes_no_distribution():
    for bad in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}):
        with pytest.raises(ValueError, match=r"sampling\.\w+ is"):
            Settings(**bad)
