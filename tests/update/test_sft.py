"""Supervised steps: the authors' mean, exact accumulation, the same on a mesh."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vinejax import policy, sharding, update


@pytest.fixture(scope="module")
def sft(config, hyper):
    return update.SftHyper(config, hyper.optimizer, microbatch=8)


@pytest.fixture(scope="module")
def demonstrations(batch):
    return update.SftBatch(batch.tokens, batch.length, batch.is_response)


@pytest.fixture
def train(run, sft):
    def train(demonstrations, mesh=None, **settings):
        return run(demonstrations, mesh, update.make_sft_step, sft, **settings)

    return train


def plain_loss(params, config, demonstrations):
    logits = policy.forward(params, config, demonstrations.tokens)[:, :-1, : config.num_tokens]
    targets = demonstrations.tokens[:, 1:, None]
    loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets, -1)[..., 0]
    rows = np.asarray(demonstrations.is_response)
    return jnp.stack([loss[b, np.flatnonzero(row) - 1].mean() for b, row in enumerate(rows)]).mean()


def test_loss_and_gradient_are_those_of_the_plain_formula(train, config, params, demonstrations):
    metrics, gradient, _ = train(demonstrations)
    loss, expected = jax.jit(jax.value_and_grad(lambda p: plain_loss(p, config, demonstrations)))(
        params
    )
    assert_allclose(metrics.loss, loss, rtol=1e-5)
    jax.tree.map(
        lambda a, b: assert_allclose(a, b, atol=1e-5 * metrics.grad_norm), gradient, expected
    )
    assert (metrics.tokens, metrics.examples) == (53, 8)


def test_micro_batch_and_mesh_do_not_matter(train, assert_same, demonstrations):
    whole = train(demonstrations)
    assert_same(whole, train(demonstrations, microbatch=2))
    assert_same(whole, train(demonstrations, sharding.make_mesh(2, 2, 2), microbatch=4))


def test_rows_without_a_response_have_no_weight(train, assert_same, demonstrations):
    filled = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)]), demonstrations)
    assert_same(train(demonstrations), train(filled))


def test_training_lowers_the_loss(sft, params, demonstrations):
    optimizer = replace(sft.optimizer, eps=1e-8)
    hyper = replace(sft, optimizer=optimizer)
    step, state = update.make_sft_step(hyper).step, update.init(params, hyper)
    losses = []
    for _ in range(10):
        state, metrics = step(state, demonstrations)
        losses.append(float(metrics.loss))
    assert losses[-1] < losses[0] - 0.5
