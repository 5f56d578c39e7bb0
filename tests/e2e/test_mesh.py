"""A whole iteration on eight devices is the iteration on one: same samples, same update."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import export, run
from tests.e2e import runs
from vinejax import policy
from vinejax.report import read_rollouts

MESHES = {"data": (8, 1, 1), "all": (2, 2, 2)}

# One update, from the random initialisation. Adam's usual epsilon would turn the sign of a gradient
# of rounding size into a full step.
ONE = {
    "iterations": 1,
    "sft__epochs": 0,
    "update__epochs": 1,
    "update__minibatch": 8,
    "update__microbatch": 8,
    "update__eps": 0.1,
    "update__decay": "constant",
    "update__warmup_ratio": 0,
    "evaluation__problems": 2,
    "evaluation__test_problems": 2,
    "grading__workers": 1,
}


def on_mesh(out: Path, shape: tuple[int, int, int], **changes: Any) -> list[str]:
    data, fsdp, tensor = shape
    return runs.flags(out, **ONE | changes, mesh__data=data, mesh__fsdp=fsdp, mesh__tensor=tensor)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mesh") / "alone"
    runs.train(*on_mesh(out, (1, 1, 1)))
    return out


def exported(out: Path) -> policy.Params:
    """The parameters in the newest checkpoint, by way of a model folder."""
    to = out.with_name(out.name + "-exported")
    assert export.main([f"--run={out}", f"--to={to}"]) == 0
    return policy.load_hf(to)[1]


@pytest.mark.parametrize("name", MESHES)
def test_an_iteration_does_not_depend_on_the_mesh(name: str, alone: Path, tmp_path: Path):
    out = tmp_path / name
    assert run.main(on_mesh(out, MESHES[name])) == 0
    ours, theirs = read_rollouts(out, 1), read_rollouts(alone, 1)
    assert len({record["reward"] for record in ours}) > 1  # something to learn from
    assert ours == theirs  # tokens, steps, values, advantages, rewards
    a, b = runs.metrics(out)[0], runs.metrics(alone)[0]
    assert a.keys() == b.keys()
    assert b["grad_norm"] > 0.1
    for key in a.keys() - {"padding_share_update"}:  # rows must divide among devices
        assert a[key] == pytest.approx(b[key], rel=1e-5, abs=1e-6), key
    moved = jax.tree.map(lambda x, y: np.abs(x - y).max(), exported(out), exported(alone))
    assert max(jax.tree.leaves(moved)) < 1e-6


def test_a_run_goes_on_and_is_exported_on_other_devices(tmp_path: Path):
    out = tmp_path / "run"
    assert run.main(on_mesh(out, (2, 2, 2))) == 0
    before = runs.metrics(out)
    there = exported(out)
    runs.train(*on_mesh(out, (1, 1, 1), iterations=2), "--resume")
    assert runs.metrics(out)[:1] == before
    assert [line["iteration"] for line in runs.metrics(out)] == [1, 2]
    here = exported(out)
    assert jax.tree.map(np.shape, here) == jax.tree.map(np.shape, there)
    assert not np.array_equal(here["embed"], there["embed"])
