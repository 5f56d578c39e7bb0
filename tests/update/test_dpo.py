"""DPO-Positive: the worked pair, what masks hide, exact accumulation, the same on every mesh.

Loss and gradient of a whole update are compared with torch in tests/parity.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import sharding, update
from vinejax.update.dpo import pair_terms

SLOW = [pytest.param(shape, marks=pytest.mark.slow) for shape in [(8, 1, 1), (1, 8, 1)]]
MESHES = [(2, 2, 2), *SLOW]


@pytest.fixture(scope="module")
def dpo(config, hyper):
    return update.DpoHyper(config, hyper.optimizer, microbatch=8, beta=0.3, penalty=5.0)


@pytest.fixture(scope="module")
def pairs(batch, make_batch):
    """Eight pairs of unequal lengths; the reference is the policy with noise."""
    sides = (batch, make_batch(responses=(9, 2, 5, 13, 1, 6, 3, 11), seed=2))

    def stacked(name):
        return jnp.stack([getattr(side, name) for side in sides], axis=1)

    is_response = stacked("is_response")
    ref_logp = jnp.where(is_response, stacked("ref_logp"), 0).sum(-1)
    return update.PairBatch(stacked("tokens"), stacked("length"), is_response, ref_logp)


@pytest.fixture
def train(run, dpo):
    def train(pairs, mesh=None, **settings):
        return run(pairs, mesh, update.make_dpo_step, dpo, **settings)

    return train


def test_the_worked_pair():
    """Accepted 1 nat less likely than under the reference, rejected 2 nats: penalty 50 x 1."""
    logp, ref = jnp.array([[-11.0, -22.0]]), jnp.array([[-10.0, -20.0]])
    terms = pair_terms(logp, ref, beta=0.1, penalty=50.0)
    z = 0.1 * ((-11 + 22) - (-10 + 20) - 50 * 1)
    assert_allclose(terms.loss, np.log1p(np.exp(-z)), rtol=1e-6)  # 4.907
    assert_allclose(terms.margin, 0.1, rtol=1e-5)
    assert terms.penalised
    plain = pair_terms(logp, ref, beta=0.1, penalty=0.0)
    assert_allclose(plain.loss, np.log1p(np.exp(-0.1)), rtol=1e-6)
    smoothed = pair_terms(logp, ref, beta=0.1, penalty=0.0, label_smoothing=0.25)
    expected = 0.75 * np.log1p(np.exp(-0.1)) + 0.25 * np.log1p(np.exp(0.1))
    assert_allclose(smoothed.loss, expected, rtol=1e-6)


def test_the_gradient_of_the_penalty():
    def slopes(chosen):
        logp = jnp.array([[chosen, -2.0]])
        return jax.grad(lambda x: pair_terms(x, jnp.array([[-1.0, -2.0]]), 0.1, 50.0).loss[0])(logp)

    # At the reference: plain DPO, -beta / 2 and beta / 2. Below it, 51 times as much on `chosen`.
    assert_allclose(slopes(-1.0), [[-0.05, 0.05]], rtol=1e-6)
    below = slopes(-1.1)[0]
    assert_allclose(below[0], -51 * below[1], rtol=1e-6)
    above = slopes(-0.9)[0]
    assert_allclose(above[0], -above[1], rtol=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_large_differences_stay_finite(size):
    logp = jnp.array([[-size, 0.0], [0.0, -size]])
    value, slope = jax.value_and_grad(
        lambda x: pair_terms(x, jnp.zeros((2, 2)), 0.1, 50.0, 0.1).loss.sum()
    )(logp)
    assert jnp.isfinite(value)
    assert jnp.isfinite(slope).all()


def test_micro_batch_does_not_matter(train, assert_same, pairs):
    whole = train(pairs)
    assert 0 < whole[0].penalised < 1
    for microbatch in (1, 2):
        assert_same(whole, train(pairs, microbatch=microbatch))


@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_mesh_does_not_matter(train, assert_same, pairs, shape):
    mesh = sharding.make_mesh(*shape, devices=jax.devices()[: int(np.prod(shape))])
    assert_same(train(pairs), train(pairs, mesh))


def test_nor_does_accumulation_on_a_mesh(train, assert_same, pairs):
    assert_same(train(pairs), train(pairs, sharding.make_mesh(2, 2, 2), microbatch=4))


def test_pairs_without_responses_have_no_weight(train, assert_same, pairs):
    filled = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)]), pairs)
    filled = filled.replace(ref_logp=filled.ref_logp.at[8:].set(jnp.nan))
    assert_same(train(pairs), train(filled))


def test_what_lies_beyond_a_response_has_no_effect(train, pairs):
    """Not one bit, whatever is in the padding."""
    beyond = jnp.arange(pairs.tokens.shape[-1]) >= pairs.length[..., None]
    dirty = pairs.replace(
        tokens=jnp.where(beyond, 2**30, pairs.tokens), is_response=pairs.is_response | beyond
    )
    jax.tree.map(assert_array_equal, train(pairs), train(dirty))


def test_no_pair_at_all_moves_nothing(train, pairs, params):
    metrics, gradient, new = train(jax.tree.map(jnp.zeros_like, pairs))
    assert (metrics.pairs, metrics.loss, metrics.grad_norm) == (0, 0, 0)
    jax.tree.map(assert_array_equal, new, jax.device_get(params))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_at_rate_0_parameters_keep_every_bit(train, pairs, params, hyper):
    still = update.Optimizer(learning_rate=0.0, total_steps=10, decay="constant")
    metrics, _, new = train(pairs, optimizer=still)
    assert metrics.grad_norm > 0
    jax.tree.map(assert_array_equal, new, jax.device_get(params))


def test_training_widens_the_margin_and_keeps_the_chosen_likely(dpo, params, pairs):
    optimizer = update.Optimizer(learning_rate=3e-3, total_steps=30, decay="constant")
    hyper = update.DpoHyper(dpo.policy, optimizer, 8, beta=0.3, penalty=5.0)
    step, state = update.make_dpo_step(hyper).step, update.init(params, hyper)
    seen = []
    for _ in range(30):
        state, metrics = step(state, pairs)
        seen.append(jax.device_get(metrics))
    assert seen[-1].loss < 0.5 * seen[0].loss
    assert seen[-1].accuracy == 1
    assert seen[-1].chosen_logp > seen[0].chosen_logp
    assert seen[-1].rejected_logp < seen[0].rejected_logp
