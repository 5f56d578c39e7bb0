"""Runs inside the test process, on one of its eight pretended devices."""

from collections.abc import Callable
from functools import partial

import jax
import pytest

from experiments import run
from vinejax import sharding

Run = Callable[..., None]


@pytest.fixture(scope="module")
def train() -> "pytest.Generator[Run]":
    """Calls experiments.run with arguments; anything but success fails the test."""

    def call(*arguments: str) -> None:
        assert run.main(arguments) == 0

    with pytest.MonkeyPatch.context() as patch:
        alone = partial(sharding.make_mesh, devices=jax.devices()[:1])
        patch.setattr(sharding, "make_mesh", alone)
        yield call
