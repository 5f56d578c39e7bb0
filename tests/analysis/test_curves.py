"""Accuracy against cost, KL and training reward, by hand; and the page of an analysis."""

import math
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose

from experiments import configs
from vinejax.analysis import figures, values
from vinejax.analysis.curves import curves
from vinejax.analysis.quality import slope_of

CONFIG = replace(configs.get("tiny"), iterations=4)


def line(iteration, reward, kl, validation=None):
    found = {
        "iteration": iteration,
        "reward": reward,
        "kl_k1": kl,
        "kl_k3": kl,
        "tokens_sampled": 100,
        "time/iteration": 2.0,
    }
    if validation is not None:
        found |= {
            "validation/pass_at_1": validation,
            "validation/pass_at_1_low": validation - 0.1,
            "validation/pass_at_1_high": validation + 0.1,
            "time/validation": 0.5,
        }
    return found


LINES = [line(1, 0.1, 0.0), line(2, 0.3, 0.1, 0.2), line(3, 0.3, 0.2), line(4, 0.7, 0.4, 0.4)]


def test_points_by_hand():
    first, second = curves(CONFIG, LINES, {})["points"]
    assert (first["iteration"], first["pass_at_1"], first["low"]) == (2, 0.2, 0.1)
    assert first["episodes"] == 2 * CONFIG.episodes
    assert first["updates"] == 2 * CONFIG.updates / CONFIG.iterations
    assert (first["tokens_sampled"], second["tokens_sampled"]) == (200, 400)
    assert (first["seconds"], second["seconds"]) == (3.5, 7.0)
    # The two iterations before the validation and the two behind it.
    assert_allclose([first["train_reward"], first["kl_k1"]], [0.35, 0.175])
    assert_allclose([second["train_reward"], second["kl_k1"]], [0.5, 0.3])
    assert_allclose(curves(CONFIG, LINES, {})["slope"], 0.2 / 0.15)


def test_slopes_by_hand():
    assert slope_of([0, 1, 2], [0, 1, 1]) == pytest.approx(0.5)
    assert math.isnan(slope_of([1], [1]))
    assert math.isnan(slope_of([1, 1], [0, 1]))


def test_test_results_are_those_of_the_summary():
    summary = {"sft_pass_at_1": 0.1, "sft_interval": [0.0, 0.2], "final_pass_at_1": 0.5}
    test = curves(CONFIG, [], summary)["test"]
    assert test["sft"] == {"pass_at_1": 0.1, "interval": [0.0, 0.2]}
    assert test["final"] == {"pass_at_1": 0.5, "interval": None}


@pytest.mark.parametrize("lines", [[], LINES])
def test_the_page_of_curves_alone_asks_for_nothing_outside(lines):
    result = {"values": [], "actions": [], "gradients": [], "curves": curves(CONFIG, lines, {})}
    page = figures.render("<run>", CONFIG, 256, result, {})
    assert "&lt;run&gt;" in page
    assert "<run>" not in page
    assert "default-src 'none'" in page or "default-src &#x27;none&#x27;" in page
    assert page.count('class="plot"') == (6 if lines else 0)


def test_of_many_checkpoints_the_page_shows_the_ends_and_folds_all():
    at = {"problem": ["a", "b"], "step": [0, 1], "truth": [0.0, 1.0], "predicted": {"mc_1": [0, 1]}}
    found = [{"iteration": i} | values.summarise(at) for i in (0, 10, 20)]
    result = {"values": found, "actions": [], "gradients": [], "curves": curves(CONFIG, [], {})}
    page = figures.render("run", CONFIG, 256, result, {})
    shown, _, folded = page.partition("<summary>All 3 checkpoints</summary>")
    assert [f">{i}: 1 rollout" in shown for i in (0, 10, 20)] == [True, False, True]
    assert [f">{i}: 1 rollout" in folded for i in (0, 10, 20)] == [True] * 3
    two = figures.render("run", CONFIG, 256, result | {"values": found[:2]}, {})
    assert "checkpoints</summary>" not in two
