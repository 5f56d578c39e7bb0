"""Metrics of predictions, against numbers worked out by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vinejax.analysis import quality

PREDICTED = np.array([0.0, 0.55, 1.0, 0.25])
TRUTH = np.array([0.0, 0.5, 0.5, 0.5])
STEP = np.array([0, 0, 1, 1])
PROBLEM = ["a", "a", "b", "b"]


def test_the_paper_s_metrics_by_hand():
    assert quality.within(PREDICTED, TRUTH) == 0.5  # errors 0, .05 (on the edge), .5, .25
    assert_allclose(quality.mean_error(PREDICTED, TRUTH), 0.2)
    assert_allclose(quality.bias(PREDICTED, TRUTH), 0.075)  # (0 + .05 + .5 - .25) / 4
    # Deviations (-.45, .1, .55, -.2) and (-.375, .125, .125, .125).
    assert_allclose(quality.correlation(PREDICTED, TRUTH), 0.225 / np.sqrt(0.555 * 0.1875))
    # truth - predicted: 0, -.05, -.5, .25; its variance .3150 / 4 - .075^2; that of truth .046875.
    assert_allclose(
        quality.explained_variance(PREDICTED, TRUTH), 1 - (0.315 / 4 - 0.075**2) / 0.046875
    )
    # Mean error .025 at step 0, .375 at step 1.
    assert_allclose(quality.slope(PREDICTED, TRUTH, STEP), 0.35)


def test_a_constant_explains_nothing_and_has_no_correlation():
    constant = np.full(4, TRUTH.mean())
    assert quality.explained_variance(constant, TRUTH) == 0
    assert np.isnan(quality.correlation(constant, TRUTH))
    assert np.isnan(quality.explained_variance(PREDICTED, np.full(4, 0.1)))
    assert np.isnan(quality.slope(PREDICTED, TRUTH, np.zeros(4, int)))
    assert quality.explained_variance(TRUTH, TRUTH) == 1


def test_error_by_step_by_hand():
    first, second = quality.by_step(PREDICTED, TRUTH, STEP, PROBLEM)
    assert (first["step"], first["states"], second["step"]) == (0, 2, 1)
    assert_allclose([first["value"], second["value"]], [0.025, 0.375])
    assert first["low"] is None  # one problem: nothing is known of others


def test_calibration_by_hand():
    predicted = np.array([-0.2, 0.04, 0.3, 0.3, 1.0, 1.4])
    truth = np.array([0.0, 0.2, 0.5, 0.1, 0.9, 1.0])
    found = quality.calibration(predicted, truth)
    assert [b["states"] for b in found["bins"]] == [2, 2, 2]
    assert_allclose([b["predicted"] for b in found["bins"]], [-0.08, 0.3, 1.2])
    assert_allclose([b["truth"] for b in found["bins"]], [0.1, 0.3, 0.95])
    assert_allclose(found["error"], (2 * 0.18 + 0 + 2 * 0.25) / 6)


def test_the_interval_is_over_problems():
    values = np.array([0.0] * 10 + [1.0])

    def mean(x: np.ndarray) -> float:
        return float(x.mean())

    # Two problems: the draws are aa, ab, ba, bb.
    found = quality.with_interval(mean, [values], ["a"] * 10 + ["b"])
    assert found == {"value": pytest.approx(1 / 11), "low": 0.0, "high": 1.0}
    alone = quality.with_interval(mean, [values], ["a"] * 11)
    assert alone == {"value": pytest.approx(1 / 11), "low": None, "high": None}


def test_the_interval_of_many_independent_problems_is_that_of_a_mean():
    values = np.random.default_rng(1).normal(size=400)
    found = quality.with_interval(lambda x: float(x.mean()), [values], [str(i) for i in range(400)])
    value, low, high = (found[name] or np.nan for name in ("value", "low", "high"))
    half = 1.96 * values.std() / 20
    assert_allclose([high - value, value - low], half, rtol=0.15)


def test_what_is_not_defined_is_none():
    found = quality.measure(np.zeros(3), np.zeros(3), np.arange(3), ["a", "b", "c"])
    assert found["mae"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert found["correlation"] == {"value": None, "low": None, "high": None}
