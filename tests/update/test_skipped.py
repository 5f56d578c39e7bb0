"""An update whose loss or gradient is not finite changes nothing but the step counter."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vinejax import update


def spoilt(array, value):
    """With `value` at a response token of row 2, or at the chosen response of pair 2."""
    return array.at[2, 4 % array.shape[1]].set(value)


@pytest.fixture(scope="module")
def cases(config, params, hyper, batch):
    """Of each update: the jitted step, a fresh state, a batch, and a field that can spoil it."""
    shared = {"optimizer": hyper.optimizer, "microbatch": 4}
    rows = {name: getattr(batch, name) for name in ("tokens", "length", "is_response")}
    pairs = {name: x.reshape(4, 2, *x.shape[1:]) for name, x in rows.items()}
    critic = update.CriticHyper(config, **shared)
    numbers = {"returns": batch.advantages, "old_values": batch.advantages}
    key = jax.random.key(1)
    return {
        "policy": (update.make_step(hyper), update.init(params, hyper), batch, "advantages"),
        "critic": (
            update.make_critic_step(critic),
            update.init_critic(params, critic, key),
            update.CriticBatch(**rows, **numbers),
            "returns",
        ),
        "sft": (
            update.make_sft_step(update.SftHyper(config, **shared)),
            update.init(params, update.SftHyper(config, **shared)),
            update.SftBatch(**rows),
            None,
        ),
        "dpo": (
            update.make_dpo_step(update.DpoHyper(config, **shared)),
            update.init(params, update.DpoHyper(config, **shared)),
            update.PairBatch(**pairs, ref_logp=jnp.full((4, 2), -3.0)),
            "ref_logp",
        ),
    }


def stepped(sharded, state, batch):
    """The state before, as NumPy, and state and metrics behind one update."""
    before = jax.device_get(state)
    state, metrics = sharded.step(state, batch)
    return before, state, jax.device_get(metrics)


def assert_nothing_but_the_step(before, after):
    after = jax.device_get(after)
    jax.tree.map(assert_array_equal, before.params, after.params)
    jax.tree.map(assert_array_equal, before.opt_state, after.opt_state)
    assert after.step == before.step + 1


@pytest.mark.parametrize("name", ["policy", "critic", "sft", "dpo"])
def test_a_spoilt_update_leaves_every_bit_and_the_next_one_learns(cases, name):
    sharded, state, batch, field = cases[name]
    _, state, metrics = stepped(sharded, jax.tree.map(jnp.copy, state), batch)
    assert (metrics.skipped, state.step) == (0, 1)  # and the moments are no longer 0
    assert any(np.any(m) for m in jax.tree.leaves(jax.device_get(state.opt_state[1].mu)))
    for value in (np.nan, np.inf) if field else ():
        bad = replace(batch, **{field: spoilt(getattr(batch, field), value)})
        before, state, metrics = stepped(sharded, state, bad)
        assert metrics.skipped == 1, value
        assert_nothing_but_the_step(before, state)
    before, state, metrics = stepped(sharded, state, batch)
    assert metrics.skipped == 0
    changed = jax.tree.map(lambda x, y: (x != y).any(), before.params, jax.device_get(state.params))
    assert any(jax.tree.leaves(changed))


@pytest.mark.parametrize("name", ["policy", "critic", "sft", "dpo"])
def test_parameters_that_are_no_numbers_are_counted_and_stay(cases, name):
    sharded, state, batch, _ = cases[name]
    state = jax.tree.map(jnp.copy, state)
    state = replace(state, params=state.params | {"embed": state.params["embed"] * jnp.nan})
    before, state, metrics = stepped(sharded, state, batch)
    assert metrics.skipped == 1
    assert_nothing_but_the_step(before, state)
