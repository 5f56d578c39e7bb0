"""A whole iteration on several devices is the iteration on one: same samples, same update."""

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import run
from tests.e2e import one_iteration, runs
from vinejax.train import learning

MESHES = [(1, 2, 1), (2, 1, 2), (8, 1, 1), (1, 8, 1), (2, 2, 2)]
PLACES = [
    pytest.param(shape, id="x".join(map(str, shape)), marks=[pytest.mark.slow] * (i > 0))
    for i, shape in enumerate(MESHES)
]


def train(out: Path, mesh: tuple[int, int, int], *more: str, **changes: Any) -> None:
    with runs.some_devices(int(np.prod(mesh))):
        assert run.main([*one_iteration.flags(out, mesh, **changes), *more]) == 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mesh") / "alone"
    train(out, (1, 1, 1))
    one_iteration.assert_is_a_test(out)
    return out


@pytest.mark.parametrize("mesh", PLACES)
def test_an_iteration_does_not_depend_on_the_mesh(
    mesh: tuple[int, int, int], alone: Path, tmp_path: Path
):
    out = tmp_path / "run"
    train(out, mesh)
    one_iteration.assert_same(out, alone)


@pytest.mark.slow
def test_a_mean_over_devices_for_a_sum_would_be_noticed(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    step = importlib.import_module("vinejax.update.step")  # the package has a function of that name
    whole = step.gradient_sum

    def averaged(*arguments: Any) -> Any:
        gradient, statistics = whole(*arguments)
        mesh = arguments[4]
        return jax.tree.map(lambda g: g / mesh.shape["fsdp"], gradient), statistics

    monkeypatch.setattr(step, "gradient_sum", averaged)
    train(tmp_path / "run", (1, 2, 1))
    with pytest.raises(AssertionError):
        one_iteration.assert_same(tmp_path / "run", alone)


@pytest.mark.slow
def test_rows_that_lie_on_the_wrong_device_would_be_noticed(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each device gets the tokens of one sequence and the advantages of another."""
    packed = learning.minibatches

    def crossed(*arguments: Any) -> Any:
        for part in packed(*arguments):
            yield part | {"advantages": np.roll(part["advantages"], 1, axis=0)}

    monkeypatch.setattr(learning, "minibatches", crossed)
    train(tmp_path / "run", (1, 2, 1))
    with pytest.raises(AssertionError):
        one_iteration.assert_same(tmp_path / "run", alone)


@pytest.mark.slow
def test_a_run_goes_on_and_is_exported_on_other_devices(tmp_path: Path):
    out = tmp_path / "run"
    train(out, (2, 2, 2))
    before = runs.metrics(out)
    there = one_iteration.exported(out)
    train(out, (1, 1, 1), "--resume", iterations=2)
    assert runs.metrics(out)[:1] == before
    assert [line["iteration"] for line in runs.metrics(out)] == [1, 2]
    here = one_iteration.exported(out)
    assert jax.tree.map(np.shape, here) == jax.tree.map(np.shape, there)
    assert not np.array_equal(here["embed"], there["embed"])
