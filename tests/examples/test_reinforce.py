"""The worked example of a method: what it computes, and that it stays short.

That it runs and resumes is in tests/e2e/test_methods.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from examples import reinforce

LONGEST = 40  # lines


def test_it_fits_on_a_screen():
    assert reinforce.__file__ is not None
    assert len(Path(reinforce.__file__).read_text().splitlines()) < LONGEST


def test_the_baseline_is_that_of_earlier_iterations_and_moves_a_tenth(
    monkeypatch: pytest.MonkeyPatch,
):
    given: list[np.ndarray] = []
    monkeypatch.setattr(
        reinforce.Reinforce,
        "same_for_all_tokens",
        lambda self, advantages, *rest: given.append(advantages),
    )
    context: Any = None
    method = reinforce.Reinforce(context)
    for reward in ([1.0, 0.0], [1.0, 1.0]):
        batch: Any = SimpleNamespace(reward=np.array(reward, np.float32))
        method.assign(0, batch, {}, context)
    assert_allclose(given, [[1, 0], [0.95, 0.95]], rtol=1e-6)  # the first mean was 0.5
    assert_allclose(method.state["baseline"], [0.145], rtol=1e-6)  # 0.9 x 0.05 + 0.1 x 1
    assert method.state["baseline"].dtype == np.float32
