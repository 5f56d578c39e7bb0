"""The critic: where it starts, its loss by hand and by another formula, masks, meshes, learning."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import policy, sharding, update
from vinejax.update import critic

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def hyper_c(config, hyper):
    return update.CriticHyper(config, hyper.optimizer, microbatch=8)


@pytest.fixture(scope="module")
def rows(batch):
    """The policy's rows with returns around the critic's values, and old values near them."""
    rng = np.random.default_rng(2)
    returns, old = rng.normal(size=(2, *batch.tokens.shape)).astype(np.float32)
    return update.CriticBatch(
        batch.tokens, batch.length, batch.is_response, jnp.asarray(returns), jnp.asarray(old)
    )


@pytest.fixture(scope="module")
def train(params, hyper_c):
    """One update: (metrics, clipped gradient, new parameters), on the host."""

    def train(rows, mesh=None, **settings):
        hyper = replace(hyper_c, **settings)
        state = update.init_critic(params, hyper, KEY, mesh)
        made = update.make_critic_step(hyper, mesh)
        state, metrics = made.step(state, jax.device_put(rows, made.batch_sharding))
        share = 1 - hyper.optimizer.b1
        gradient = jax.tree.map(lambda m: np.asarray(m) / share, state.opt_state[1].mu)
        return jax.device_get(metrics), gradient, jax.device_get(state.params)

    return train


def values_of(tree, config, rows):
    return critic.token_values(tree, config, rows.tokens, rows.length)


def plain_loss(tree, config, rows, clip):
    """The loss from the hidden states, one token at a time."""
    x = policy.hidden(tree, config, rows.tokens)
    terms = []
    for b, t in zip(*np.nonzero(np.asarray(rows.is_response)), strict=True):
        v = x[b, t - 1] @ tree["value"]["w"] + tree["value"]["b"]
        old, target = rows.old_values[b, t], rows.returns[b, t]
        near = jnp.clip(v, old - clip, old + clip)
        terms.append(jnp.maximum((v - target) ** 2, (near - target) ** 2))
    return 0.5 * jnp.stack(terms).mean()


def test_it_starts_as_a_copy_of_the_backbone_with_a_small_random_head(config, params, hyper_c):
    state = update.init_critic(params, hyper_c, KEY)
    assert state.params.keys() == {"embed", "layers", "final_norm", "value"}
    for name in ("embed", "layers", "final_norm"):
        jax.tree.map(assert_array_equal, state.params[name], params[name])
    assert state.params["value"]["b"] == 0
    wide = replace(hyper_c, policy=replace(config, hidden=9_999))
    backbone = {"final_norm": jnp.ones(9_999)}
    weight = update.init_critic(backbone, wide, KEY).params["value"]["w"]
    assert_allclose([weight.mean(), weight.std()], [0, 0.01], atol=5e-4)  # 1 / sqrt(10,000)


def test_a_value_depends_on_the_tokens_before_it_alone(config, params, hyper_c, rows):
    tree = update.init_critic(params, hyper_c, KEY).params
    values = values_of(tree, config, rows)
    at = 7
    other = replace(rows, tokens=rows.tokens.at[:, at:].add(1) % config.num_tokens)
    changed = values_of(tree, config, other)
    assert_array_equal(values[:, : at + 1], changed[:, : at + 1])
    assert (values[:, at + 1] != changed[:, at + 1])[rows.length > at + 1].all()
    assert_array_equal(values[:, 0], 0)
    outside = np.arange(rows.tokens.shape[1]) >= np.asarray(rows.length)[:, None]
    assert_array_equal(np.asarray(values)[outside], 0)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "clipped"),
    [
        (0.5, 0.5, 1.0, 0.125, 0),
        (0.9, 0.5, 1.0, 0.5 * 0.3**2, 1),  # moved too far towards the target: clipped at 0.7
        (0.1, 0.5, 1.0, 0.5 * 0.9**2, 0),  # moved away: the whole error counts
        (1.5, 1.0, 1.2, 0.5 * 0.3**2, 0),  # beyond the target: clipped at 1.2, which errs less
    ],
)
def test_clipping_by_hand(value, old, target, loss, clipped):
    one = jnp.ones((1, 1))
    got = critic.value_errors(value * one, old * one, target * one, one > 0, clip=0.2)
    assert_allclose(got, [loss, clipped], rtol=1e-5)


def test_loss_and_gradient_are_those_of_the_plain_formula(train, config, params, hyper_c, rows):
    metrics, gradient, _ = train(rows)
    tree = update.init_critic(params, hyper_c, KEY).params
    loss, expected = jax.jit(jax.value_and_grad(lambda p: plain_loss(p, config, rows, 0.2)))(tree)
    assert_allclose(metrics.loss, loss, rtol=1e-5)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(expected)))
    assert_allclose(metrics.grad_norm, norm, rtol=1e-5)
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-5 * norm), gradient, expected)
    assert metrics.tokens == 53
    assert 0 < metrics.clip_fraction < 1


def test_micro_batch_and_mesh_do_not_matter(train, assert_same, rows):
    whole = train(rows)
    assert_same(whole, train(rows, microbatch=2))
    assert_same(whole, train(rows, sharding.make_mesh(2, 2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1)])
def test_nor_do_meshes_of_one_axis(train, assert_same, rows, shape):
    assert_same(train(rows), train(rows, sharding.make_mesh(*shape)))


def test_values_do_not_depend_on_the_mesh(config, params, hyper_c, rows):
    alone = values_of(update.init_critic(params, hyper_c, KEY).params, config, rows)
    mesh = sharding.make_mesh(2, 2, 2)
    state = update.init_critic(params, hyper_c, KEY, mesh)
    assert state.params["value"]["w"].addressable_shards[0].data.shape == (8,)
    given = jax.device_put((rows.tokens, rows.length), sharding.batch(mesh))
    assert_allclose(update.make_values(hyper_c, mesh)(state.params, *given), alone, atol=1e-5)


@pytest.mark.parametrize("garbage", [100.0, np.nan, -np.inf])
def test_garbage_in_masked_slots_and_tokens_beyond_the_length_change_nothing(train, rows, garbage):
    dirty = {
        name: jnp.where(rows.is_response, getattr(rows, name), garbage)
        for name in ("returns", "old_values")
    }
    inside = jnp.arange(rows.tokens.shape[1]) < rows.length[:, None]
    tokens = jnp.where(inside, rows.tokens, 10**6)
    jax.tree.map(assert_array_equal, train(rows), train(replace(rows, tokens=tokens, **dirty)))


def test_rows_without_a_response_have_no_weight(train, assert_same, rows):
    filled = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)]), rows)
    assert_same(train(rows), train(filled))


def test_a_learning_rate_of_0_changes_no_bit(train, params, hyper_c, rows):
    still = replace(hyper_c.optimizer, learning_rate=0.0, weight_decay=0.1)
    _, _, moved = train(rows, optimizer=still)
    jax.tree.map(assert_array_equal, moved, update.init_critic(params, hyper_c, KEY).params)


def test_the_state_is_donated_and_shares_nothing_with_the_start(params, hyper_c, rows):
    state = update.init_critic(params, hyper_c, KEY)
    update.make_critic_step(hyper_c).step(state, rows)
    assert all(x.is_deleted() for x in jax.tree.leaves(state.params))
    assert not any(x.is_deleted() for x in jax.tree.leaves(params))


def test_it_learns_the_returns_of_a_fixed_data_set(config, params, hyper_c, rows):
    """1 for the responses whose first token is even, else 0: to be read off the tokens."""
    kind = (rows.tokens[:, 3] % 2).astype(jnp.float32)[:, None]
    target = jnp.where(rows.is_response, kind, jnp.nan)
    optimizer = replace(hyper_c.optimizer, eps=1e-8, total_steps=200)
    hyper = replace(hyper_c, optimizer=optimizer)
    state, step = update.init_critic(params, hyper, KEY), update.make_critic_step(hyper).step
    after_first = np.asarray(rows.is_response).copy()
    after_first[:, 3] = False  # before the first token of a response its kind is not known
    for _ in range(100):
        old = values_of(state.params, config, rows)
        state, _ = step(state, replace(rows, returns=target, old_values=old))
    error = np.asarray(values_of(state.params, config, rows) - kind)[after_first]
    spread = np.broadcast_to(kind, rows.tokens.shape)[after_first]
    assert 1 - error.var() / spread.var() > 0.9
