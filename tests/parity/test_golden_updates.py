"""Losses and gradients of training on own responses, against numbers computed once with torch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.parity import kinds
from tests.parity import make_golden_updates as made
from vinejax import policy, update
from vinejax.policy import names

OPTIMIZER = update.Optimizer(
    learning_rate=1e-3, total_steps=1, decay="constant", max_grad_norm=1e6, eps=1e-1
)


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(made.GOLDEN, allow_pickle=False) as file:
        return dict(file)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> tuple[policy.LlamaConfig, policy.Params]:
    folder = kinds.write(tmp_path_factory.mktemp("model"), made.RAW)
    return policy.load_hf(folder, compute_dtype="float32")


def step_of(sharded: update.Sharded, hyper: Any, params: policy.Params, batch: Any) -> Any:
    """Metrics and gradient: the first moment after one update is (1 - b1) times the gradient."""
    state, metrics = sharded.step(update.init(params, hyper), batch)
    share = 1 - hyper.optimizer.b1
    return metrics, jax.tree.map(lambda m: np.asarray(m) / share, state.opt_state[1].mu)


def assert_gradient(gradient: Any, golden: dict[str, np.ndarray], name: str, config: Any) -> None:
    """1e-4 of the largest entry of the whole gradient."""
    expected = {e: e.flip(golden[f"{name}/{e.name}"]) for e in names.entries(config)}
    largest = max(np.abs(x).max() for x in expected.values())
    for entry, want in expected.items():
        tree = gradient if entry.layer is None else gradient["layers"]
        got = tree[entry.leaf] if entry.layer is None else tree[entry.leaf][entry.layer]
        assert_allclose(got, want, atol=1e-4 * largest, err_msg=entry.name)


@pytest.mark.parametrize("name", made.DPO)
@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_dpo_positive(name, microbatch, golden, model):
    config, params = model
    beta, penalty, smoothing = made.DPO[name]
    hyper = update.DpoHyper(
        config, OPTIMIZER, microbatch, beta, penalty, smoothing, made.TEMPERATURE
    )
    rows = (made.tokens(), made.LENGTH, made.is_response(), golden["ref_logp"])
    batch = update.PairBatch(*map(jnp.asarray, rows))
    metrics, gradient = step_of(update.make_dpo_step(hyper), hyper, params, batch)
    assert_allclose(metrics.loss, golden[name], rtol=1e-5)
    assert_gradient(gradient, golden, name, config)
    gain, logp = made.GAIN, golden["ref_logp"] + made.GAIN
    assert_allclose(metrics.margin, beta * (gain[:, 0] - gain[:, 1]).mean(), atol=1e-5)
    assert (metrics.accuracy, metrics.penalised, metrics.pairs) == (0.75, 0.5, 4)
    assert metrics.tokens == (made.LENGTH - made.PROMPT).sum()
    assert_allclose((metrics.chosen_logp, metrics.rejected_logp), logp.mean(0), rtol=1e-5)


def test_imitation_of_own_responses(golden, model):
    config, params = model
    hyper = update.SftHyper(config, OPTIMIZER, microbatch=2, temperature=made.TEMPERATURE)
    rows = (made.tokens(), made.LENGTH, made.is_response())
    batch = update.SftBatch(*(jnp.asarray(x.reshape(8, *x.shape[2:])) for x in rows))
    metrics, gradient = step_of(update.make_sft_step(hyper), hyper, params, batch)
    assert_allclose(metrics.loss, golden[made.RESTEM], rtol=1e-5)
    assert_gradient(gradient, golden, made.RESTEM, config)


def test_golden_numbers_would_show_the_wrong_temperature(golden, model):
    config, params = model
    hyper = update.SftHyper(config, OPTIMIZER, microbatch=8)
    rows = (made.tokens(), made.LENGTH, made.is_response())
    batch = update.SftBatch(*(jnp.asarray(x.reshape(8, *x.shape[2:])) for x in rows))
    metrics, _ = step_of(update.make_sft_step(hyper), hyper, params, batch)
    assert abs(metrics.loss - golden[made.RESTEM]) > 0.01
