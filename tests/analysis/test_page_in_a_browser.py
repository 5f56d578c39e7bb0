"""analysis.html in a headless Chromium; skipped where there is none."""

from pathlib import Path

import numpy as np
import pytest

from tests.analysis.test_curves import CONFIG, LINES
from tests.browser import DRAWN, Opened, browser
from vinejax.analysis import actions, figures, gradients, values
from vinejax.analysis.curves import curves

__all__ = ["browser"]  # a fixture

STATES = {
    "problem": ["a", "a", "b", "b"],
    "step": [0, 1, 0, 2],
    "truth": [0.0, 1.0, 0.25, 0.5],
    "predicted": {"mc_1": [0.0, 0.5, 1.0, 0.0], "group_mean": [0.5, 0.5, 0.25, 0.25]},
}
RANKED = {"tried": 2, "problem": ["a", "b"], "step": [1, 1]}
RANKED |= {"truth": [[0.0, 1.0, 0.0], [0.5, 0.0, 1.0]]}
RANKED |= {"predicted": {"mc_1": [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5]]}}
BATCHES = {"tokens": [10] * 4, "squares": [2.0] * 4, "products": np.full((4, 4), 1.25)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every kind of chart, of the start and of one checkpoint."""
    noise = gradients.summarise({"trajectories": 2, "estimators": {"constant": BATCHES}})
    result = {
        "values": [{"iteration": i} | values.summarise(STATES) for i in (0, 10)],
        "actions": [{"iteration": 0} | actions.summarise(RANKED)],
        "gradients": [{"iteration": i} | noise for i in (0, 10)],
        "curves": curves(CONFIG, LINES, {}),
    }
    path = tmp_path_factory.mktemp("analysis") / "analysis.html"
    figures.write(path, "run", CONFIG, 256, result, {0: STATES, 10: STATES})
    return path


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1280])
def test_all_charts_are_drawn_without_errors_requests_or_overflow(browser, written, width):
    opened = Opened(browser, written, viewport={"width": width, "height": 300})
    opened.wait_for_charts()
    assert len(opened.view.evaluate(DRAWN)) > 10
    opened.check()


@pytest.mark.slow
def test_paper_has_all_charts_in_its_own_width(browser, written):
    opened = Opened(browser, written, viewport={"width": 375, "height": 300})
    view = opened.view
    view.evaluate(f"addEventListener('beforeprint', () => {{ window.onPaperNow = {DRAWN} }})")
    view.pdf(format="A4")
    view.wait_for_selector("html:not([data-print])")
    assert all(0 < chart == place < 680 for place, chart in view.evaluate("window.onPaperNow"))
    opened.check()
