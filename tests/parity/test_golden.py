"""Parity with transformers everywhere, torch or not: logits against files computed once with it."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.parity import kinds
from tests.parity.make_golden import GOLDEN
from vinejax import policy

TOLERANCE = 1e-4  # of the logits' scale


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as file:
        return dict(file)


def test_tokens_are_those_of_the_golden_file(golden):
    np.testing.assert_array_equal(kinds.tokens(), golden["tokens"])


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_logits_equal_transformers(kind, golden, tmp_path):
    config, params = policy.load_hf(
        kinds.write(tmp_path / kind, kinds.KINDS[kind]), compute_dtype="float32"
    )
    forward = jax.jit(policy.forward, static_argnums=1)
    logits = np.asarray(forward(params, config, golden["tokens"]))
    scale = np.abs(golden[kind]).max()
    assert scale > 1  # a model whose logits are all alike would show nothing
    assert np.abs(logits - golden[kind]).max() < TOLERANCE * scale


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("two_kv_heads", "norm_eps", 1e-6),
        ("all_kv_heads", "rope_theta", 10000.0),
        ("linear_rope", "rope_scaling", None),
        ("llama3_rope", "rope_scaling", None),
    ],
)
def test_golden_files_would_show_a_wrong(kind, field, value, golden, tmp_path):
    """The settings that are easily lost make a difference far above the tolerance."""
    config, params = policy.load_hf(kinds.write(tmp_path / kind, kinds.KINDS[kind]))
    config = dataclasses.replace(config, compute_dtype="float32", **{field: value})
    logits = np.asarray(policy.forward(params, config, golden["tokens"]))
    assert np.abs(logits - golden[kind]).max() > 50 * TOLERANCE * np.abs(golden[kind]).max()
