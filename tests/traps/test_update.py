"""Traps of loss and update: stale weights, lost settings, resumed schedules, the gradient at 1."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import CONFIG, MODEL, PARAMS, iterate, iterations, setup_of
from vinejax import policy, sampler, update
from vinejax.train import learning
from vinejax.update import losses
from vinejax.update.state import advance


def same(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), a, b)))


def test_weights_for_sampling_follow_each_update_and_no_update_destroys_them():
    """Neither stale nor donated: the sampler, the scorer and the reference hold copies."""
    _, ((batch, given),) = iterations(count=1)
    changes = {"learning_rate": 1e-2, "warmup_ratio": 0.0, "minibatch": 32, "microbatch": 32}
    setup = setup_of(replace(CONFIG, update=replace(CONFIG.update, **changes)))
    reference = learning.decode_weights(setup, PARAMS)
    learner = learning.Learner(setup, PARAMS, Path("nowhere"))
    first = learner.weights()
    assert same(first, reference)
    learner.learn(0, batch, given, given.old)
    second = learner.weights()
    assert not same(second, first)
    assert same(second, policy.unstack(learner.state.params, MODEL))
    kept = jax.device_get(second)
    learner.learn(1, batch, given, given.old)
    assert same(second, kept)
    assert not same(learner.weights(), kept)
    assert same(reference, policy.unstack(PARAMS, MODEL))


def test_temperature_top_p_and_top_k_reach_the_sampler_in_both_phases(monkeypatch):
    seen = []
    original, usual = sampler.sample, setup_of().settings(0.8, 0.9)

    def sample(weights, config, trunks, jobs, settings, *args, **kwargs):
        seen.append(settings)
        return original(weights, config, trunks, jobs, usual, *args, **kwargs)

    monkeypatch.setattr(sampler, "sample", sample)
    changed = {"temperature": 0.8, "top_p": 0.7, "top_k": 3}
    setup = setup_of(replace(CONFIG, sampling=replace(CONFIG.sampling, **changed)))
    iterate(setup)
    assert len(seen) == 2
    for settings in seen:
        assert {name: getattr(settings, name) for name in changed} == changed
        assert settings.eos_ids == (setup.tokenizer.eos_id,)
        assert settings.stop is setup.stop


def test_a_resumed_schedule_goes_on_at_its_update():
    settings = update.Optimizer(0.1, 8, warmup_steps=3)
    params = {"a": jnp.array([1.0, -2.0])}
    gradients = [{"a": jnp.array([1.0, t])} for t in range(8)]

    def go_on(state, steps):
        rates = []
        for gradient in steps:
            state, _, rate, _ = advance(state, gradient, settings)
            rates.append(float(rate))
        return state, rates

    start = update.State(
        params, update.optimizer.direction(settings).init(params), jnp.zeros((), jnp.int32)
    )
    whole, rates = go_on(start, gradients)
    half, before = go_on(start, gradients[:5])
    half = jax.tree.map(jnp.asarray, jax.device_get(half))  # as a checkpoint would have it
    again, after = go_on(half, gradients[5:])
    assert before + after == rates
    assert len(set(rates)) > 5
    jax.tree.map(assert_array_equal, again, whole)


@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_the_gradient_at_ratio_1_is_the_plain_surrogates(advantage):
    """Where both branches of the maximum are equal; it is the ratio of every first update."""
    logp = jnp.full((1, 3), -1.5)
    given = jnp.full((1, 3), advantage)

    def loss(logp):
        return losses.policy_sums(logp, jnp.full((1, 3), -1.5), given, logp < 0, 0.2).loss

    assert_allclose(jax.grad(loss)(logp), np.full((1, 3), -advantage))
