"""A run of one iteration, and what must be the same of it on any devices and processes.

Same to the token: what was sampled, its steps, values, advantages, rewards and texts. Same within
fp32 summation order, 1e-5 of a number or 1e-6: metrics, among them loss and gradient norm. Within
1e-6: new parameters, after updates of up to 3e-4 each.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import export
from tests.e2e import runs
from vinejax import policy
from vinejax.report import read_rollouts

# Two updates, from the random initialisation. Adam's usual epsilon would turn the sign of a
# gradient of rounding size into a full step.
ONE = {
    "iterations": 1,
    "sft__epochs": 0,
    "update__epochs": 2,
    "update__minibatch": 8,
    "update__microbatch": 8,
    "update__eps": 0.1,
    "update__decay": "constant",
    "update__warmup_ratio": 0,
    "evaluation__problems": 2,
    "evaluation__test_problems": 2,
    "grading__workers": 1,
    "checkpoint__every": 1,
}
# How work was laid out: rows divide among devices, and slots among shards.
OF_THE_LAYOUT = {
    "padding_share_update",
    "padding_share_scoring",
    "slot_utilisation",
    "slot_utilisation_values",
}


def flags(out: Path, mesh: tuple[int, int, int] = (-1, 1, 1), **changes: Any) -> list[str]:
    """Arguments of experiments.run; `mesh` is data, fsdp, tensor."""
    data, fsdp, tensor = mesh
    return runs.flags(out, **ONE | changes, mesh__data=data, mesh__fsdp=fsdp, mesh__tensor=tensor)


def exported(out: Path) -> policy.Params:
    """The parameters in the newest checkpoint, by way of a model folder."""
    to = out.with_name(out.name + "-exported")
    assert export.main([f"--run={out}", f"--to={to}"]) == 0
    return policy.load_hf(to)[1]


SCORED = ("ref_logp", "advantages")  # of a rollout record; all else is exact


def assert_same(out: Path, alone: Path, iteration: int = 1) -> None:
    """Compares an iteration of two runs, and if it is their last one the policies."""
    for ours, theirs in zip(
        read_rollouts(out, iteration), read_rollouts(alone, iteration), strict=True
    ):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            # Scores and what follows from them: digits of fp32 depend on the shapes of a batch.
            same = value == (
                pytest.approx(theirs[name], rel=1e-5, abs=1e-5) if name in SCORED else theirs[name]
            )
            assert same, name
    a, b = (runs.metrics(folder)[iteration - 1] for folder in (out, alone))
    assert a.keys() == b.keys()
    for key in a.keys() - OF_THE_LAYOUT:
        assert a[key] == pytest.approx(b[key], rel=1e-5, abs=1e-6), key
    if iteration == len(runs.metrics(out)):
        moved = jax.tree.map(lambda x, y: np.abs(x - y).max(), exported(out), exported(alone))
        assert max(jax.tree.leaves(moved)) < 1e-6


def assert_is_a_test(alone: Path) -> None:
    """There is something to learn from, and something was learnt."""
    assert len({record["reward"] for record in read_rollouts(alone, 1)}) > 1
    assert runs.metrics(alone)[0]["grad_norm"] > 0.1
