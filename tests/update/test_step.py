"""One update: against an independent whole-batch version, micro-batches, masks, guard, donation."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import policy, update


def plain_loss(params, config, batch, kl=1e-2):
    """The paper's loss from full logits, boolean indexing and float means: no sums, no chunks."""
    logits = policy.forward(params, config, batch.tokens)[:, :-1, : config.num_tokens] / 0.6
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.tokens[:, 1:, None], -1)[..., 0]
    policy_terms, kl_terms = [], []
    flat = np.asarray(batch.advantages)[np.asarray(batch.is_response)]
    for b, row in enumerate(np.asarray(batch.is_response)):
        at = np.flatnonzero(row)
        if not at.size:
            continue
        new, a = logp[b, at - 1], (batch.advantages[b, at] - flat.mean()) / flat.std(ddof=1)
        ratio = jnp.exp(new - batch.old_logp[b, at])
        policy_terms.append(jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 0.8, 1.2)))
        d = batch.ref_logp[b, at] - new
        kl_terms.append(jnp.clip(jnp.exp(d) - d - 1, 0, 10).sum())
    return jnp.concatenate(policy_terms).mean() + kl * jnp.stack(kl_terms).mean()


def test_loss_and_gradient_are_those_of_the_plain_formula(run, config, params, batch):
    metrics, gradient, _ = run(batch)
    loss, expected = jax.jit(jax.value_and_grad(lambda p: plain_loss(p, config, batch)))(params)
    assert_allclose(metrics.loss, loss, rtol=1e-5, atol=1e-6)  # terms of order 1 cancel
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(expected)))
    assert_allclose(metrics.grad_norm, norm, rtol=1e-5)
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-5 * norm), gradient, expected)
    assert metrics.tokens == 53
    assert metrics.sequences == 8
    assert 0 < metrics.clip_fraction < 1


@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_the_micro_batch_is_a_matter_of_memory_alone(run, assert_same, batch, microbatch):
    assert_same(run(batch), run(batch, microbatch=microbatch))


def test_lengths_10_10_10_400_have_the_token_mean_whatever_the_micro_batch(
    run, assert_same, config, params, make_batch
):
    batch = make_batch(responses=(10, 10, 10, 400), width=404)
    scores, _ = policy.score(
        policy.unstack(params, config), config, batch.tokens, batch.length, 0.6
    )
    losing = jnp.array([-1.0, -1.0, -1.0, 0.0])[:, None] * jnp.ones(batch.tokens.shape)
    batch = replace(batch, advantages=losing, old_logp=scores.logp)
    whole = run(batch, microbatch=4, whiten=False)
    assert_allclose(whole[0].policy_loss, 30 / 430, rtol=1e-5)  # a mean of means has 0.750
    assert_same(whole, run(batch, microbatch=1, whiten=False))


def test_a_micro_batch_that_does_not_divide_is_refused_with_both_numbers(run, batch):
    with pytest.raises(ValueError, match=r"microbatch is 3.*8 rows"):
        run(batch, microbatch=3)


def test_the_first_update_of_an_iteration_has_ratio_1_and_no_drift(run, config, params, batch):
    weights = policy.unstack(params, config)
    scores, _ = policy.score(weights, config, batch.tokens, batch.length, 0.6)
    batch = replace(batch, old_logp=scores.logp, ref_logp=scores.logp)
    metrics, _, _ = run(batch)
    assert_allclose(metrics.ratio, 1, atol=1e-5)
    assert_allclose(metrics.ratio_max, 1, atol=1e-5)
    assert metrics.clip_fraction == 0
    assert_allclose(
        [metrics.kl_loss, metrics.kl_k1, metrics.kl_k3, metrics.approx_kl], 0, atol=1e-5
    )
    # Scoring at another temperature than sampling shows at once.
    assert abs(run(batch, temperature=1.0)[0].ratio - 1) > 0.05


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e9])
def test_garbage_in_masked_slots_and_tokens_beyond_the_length_change_nothing(run, batch, garbage):
    clean = run(batch, microbatch=2)
    dirty = {
        name: jnp.where(batch.is_response, getattr(batch, name), garbage)
        for name in ("advantages", "old_logp", "ref_logp")
    }
    inside = jnp.arange(batch.tokens.shape[1]) < batch.length[:, None]
    tokens = jnp.where(inside, batch.tokens, 10**6)
    jax.tree.map(
        assert_array_equal, clean, run(replace(batch, tokens=tokens, **dirty), microbatch=2)
    )


def test_rows_that_fill_up_a_batch_have_no_weight(run, assert_same, batch):
    def filled(x):
        return jnp.concatenate([x, jnp.full_like(x, jnp.nan if x.dtype == jnp.float32 else 0)])

    assert_same(run(batch), run(jax.tree.map(filled, batch), microbatch=4))


def test_padding_does_not_enter_the_loss(run, assert_same, make_batch, batch):
    wide = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 8))) if x.ndim == 2 else x, batch)
    assert_same(run(batch), run(wide))


def test_a_mean_ratio_above_the_guard_zeroes_the_whole_loss(run, params, batch):
    far = replace(batch, old_logp=batch.old_logp - 5.0)
    metrics, gradient, moved = run(far, microbatch=2)
    assert metrics.guarded == 1
    assert metrics.ratio > 10
    assert (metrics.loss, metrics.grad_norm) == (0, 0)
    jax.tree.map(lambda g: assert_array_equal(g, 0), gradient)
    jax.tree.map(assert_array_equal, moved, params)
    assert run(far, ratio_guard=1e9)[0].guarded == 0


def test_the_guard_looks_at_the_minibatch_not_at_the_micro_batch(run, assert_same, batch):
    one_row = batch.old_logp.at[3].add(-5.0)  # 2 of 53 tokens have a ratio near 148
    far = replace(batch, old_logp=one_row)
    whole = run(far)
    assert whole[0].guarded == 0
    assert whole[0].ratio_max > 50
    assert_same(whole, run(far, microbatch=1))


def test_a_ratio_that_is_not_finite_trips_the_guard_and_leaves_parameters_alone(run, params, batch):
    for bad in (-np.inf, np.nan):
        metrics, _, moved = run(replace(batch, old_logp=batch.old_logp.at[2, 5].set(bad)))
        assert metrics.guarded == 1
        jax.tree.map(assert_array_equal, moved, params)


def test_a_constant_divisor_weighs_every_token_alike_whatever_the_lengths(
    run, assert_same, batch, hyper
):
    """Dr. GRPO: the sum over tokens by rows x 20, where the mean divides by 53 tokens."""
    mean, fixed = run(batch, kl=0.0), run(batch, kl=0.0, length_divisor=20)
    assert_allclose(fixed[0].policy_loss * 8 * 20, mean[0].policy_loss * 53, rtol=1e-5)
    assert_allclose(fixed[0].grad_norm * 8 * 20, mean[0].grad_norm * 53, rtol=1e-5)
    assert_same(run(batch, length_divisor=20), run(batch, length_divisor=20, microbatch=2))
    # The KL term stays what it is: a sum over a sequence's tokens, a mean over sequences.
    assert_allclose(run(batch, length_divisor=20)[0].kl_loss, run(batch)[0].kl_loss, rtol=1e-6)
    only_kl = [
        run(replace(batch, advantages=0 * batch.advantages), **setting)
        for setting in ({}, {"length_divisor": 20})
    ]
    assert_same(*only_kl)
    filled = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)]), batch)
    assert_same(run(batch, length_divisor=20), run(filled, length_divisor=20))


def test_equal_advantages_leave_only_the_kl_term(run, batch):
    metrics, _, _ = run(replace(batch, advantages=jnp.full(batch.tokens.shape, 0.1)))
    assert metrics.policy_loss == 0
    assert metrics.loss == metrics.kl_loss != 0


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0.8},
        {"clip": 0.1},
        {"kl": 1.0},
        {"kl_estimator": "k1"},
        {"kl_clamp": 0.01},
        {"ratio_guard": 0.5},
        {"whiten": False},
        {"length_divisor": 20},
    ],
    ids=str,
)
def test_each_setting_reaches_the_loss(run, batch, setting):
    assert abs(run(batch)[0].loss - run(batch, **setting)[0].loss) > 1e-5


def test_logits_in_pieces_make_the_same_update(run, assert_same, batch, monkeypatch):
    whole = run(batch)
    monkeypatch.setattr("vinejax.policy.scoring.LOGIT_BYTES", 1)
    jax.clear_caches()
    assert_same(whole, run(batch))


def test_parameters_are_arguments_and_a_second_call_compiles_nothing(hyper, params, batch):
    step = update.make_step(hyper).step
    _, first = step(update.init(params, hyper), batch)
    other = jax.tree.map(lambda x: 1.1 * x, params)
    _, second = step(update.init(other, hyper), batch)
    assert first.loss != second.loss
    assert step._cache_size() == 1


def test_the_state_is_donated_and_shares_nothing_with_the_reference(hyper, params, batch):
    state = update.init(params, hyper)
    moved, _ = update.step(state, batch, hyper)
    assert all(x.is_deleted() for x in jax.tree.leaves(state.params))
    assert not any(x.is_deleted() for x in jax.tree.leaves(params))
    assert int(moved.step) == 1
    differs = jax.tree.map(lambda a, b: bool((a != b).any()), moved.params, params)
    assert all(jax.tree.leaves(differs))


def test_a_learning_rate_of_0_changes_no_bit(run, hyper, params, batch):
    still = replace(hyper.optimizer, learning_rate=0.0, weight_decay=0.1)
    _, _, moved = run(batch, optimizer=still)
    jax.tree.map(assert_array_equal, moved, params)


def test_an_update_of_a_millionth_survives_in_the_master_copy(hyper, config, params, batch):
    optimizer = replace(hyper.optimizer, learning_rate=1e-6, eps=1e-8)
    narrow = replace(hyper, policy=replace(config, compute_dtype="bfloat16"), optimizer=optimizer)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    state = update.init(half, narrow)
    for _ in range(3):
        state, _ = update.step(state, batch, narrow)
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert all(x.dtype == jnp.float32 for x in floats)
    # Norm weights are 1: bfloat16's next number below is 0.4 % away, float32's 6e-8.
    move = np.abs(np.asarray(state.params["final_norm"]) - 1)
    assert (move > 5e-7).any()
    assert move.max() < 4e-6
    assert_array_equal(state.params["final_norm"].astype(jnp.bfloat16), 1)


def test_the_learning_rate_counts_optimizer_steps_whatever_the_micro_batch(hyper, params, batch):
    optimizer = replace(hyper.optimizer, warmup_steps=2, warmup="linear")
    for microbatch in (2, 8):
        warm = replace(hyper, optimizer=optimizer, microbatch=microbatch)
        state, rates = update.init(params, warm), []
        for _ in range(3):
            state, metrics = update.step(state, batch, warm)
            rates.append(float(metrics.learning_rate))
        assert_allclose(rates, [0, 0.005, 0.01], rtol=1e-6)


def test_the_norm_is_reported_before_clipping(run, hyper, batch):
    clipped = replace(hyper.optimizer, max_grad_norm=1e-3)
    metrics, gradient, _ = run(batch, optimizer=clipped)
    assert_allclose(metrics.grad_norm, run(batch)[0].grad_norm, rtol=1e-6)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(gradient)))
    assert_allclose(norm, 1e-3, rtol=1e-5)


def test_every_metric_is_a_finite_number(run, batch):
    metrics, _, _ = run(batch)
    for field in fields(metrics):
        value = getattr(metrics, field.name)
        assert np.shape(value) == (), field.name
        assert np.isfinite(value), field.name
