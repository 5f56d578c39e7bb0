"""FLOPs by formula against XLA's count on the CPU, on programs without loops."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from vinejax import policy, rng, update
from vinejax.compiled import flops
from vinejax.policy.config import Remat
from vinejax.sampler import decode

BATCH, TIME = 4, 64


def config(tied: bool = False, remat: Remat = "none") -> policy.LlamaConfig:
    return policy.LlamaConfig(2048, 256, 2, 8, 4, 640, tied=tied, remat=remat)


def counted(function, *arguments) -> float:
    return (jax.jit(function).lower(*arguments).compile().cost_analysis() or {})["flops"]


def arrays(make):
    return jax.eval_shape(make)


@pytest.mark.parametrize("tied", [True, False])
def test_forward_is_what_xla_counts(tied: bool):
    c = config(tied=tied)
    params = arrays(lambda: policy.init(c, rng.key(0)))
    tokens = jax.ShapeDtypeStruct((BATCH, TIME), jnp.int32)
    found = counted(lambda p, t: policy.forward(p, c, t), params, tokens)
    wanted = flops.forward(c, BATCH * TIME, BATCH * TIME**2, BATCH * TIME)
    assert_allclose(found, wanted, rtol=0.05)


def test_a_decode_step_is_what_xla_counts():
    c, slots, rows, cells, ring = config(), 32, 4, 64, 32
    weights = arrays(lambda: policy.unstack(policy.init(c, rng.key(0)), c))
    trunks = arrays(lambda: decode.empty_cache(c, rows, cells))
    own = arrays(lambda: decode.empty_ring(c, slots, ring))

    def step(weights, trunks, own, token):
        far, near = (jnp.ones((slots, n), bool) for n in (cells, ring))
        cell, frozen = jnp.int32(0), jnp.zeros(slots, bool)
        return decode.step(weights, c, token, token, trunks, own, far, near, cell, frozen)

    found = counted(step, weights, trunks, own, jax.ShapeDtypeStruct((slots,), jnp.int32))
    assert_allclose(found, flops.decode(c, slots, slots * (cells + ring)), rtol=0.05)


@pytest.mark.parametrize("remat", ["none", "block", pytest.param("dots", marks=pytest.mark.slow)])
def test_an_update_is_what_xla_counts(remat: Remat):
    c = config(remat=remat)
    hyper = update.Hyper(c, update.Optimizer(1e-3, total_steps=9), microbatch=BATCH)
    state = arrays(lambda: update.init(policy.init(c, rng.key(0)), hyper))
    whole, real = jnp.zeros((BATCH, TIME), jnp.int32), jnp.zeros((BATCH, TIME))
    batch = update.Batch(whole, whole[:, 0], whole > 0, real, real, real)
    found = counted(update.make_step(hyper).step, state, batch)
    size = (BATCH * TIME, BATCH * TIME**2, BATCH * (TIME - 1))
    wanted = flops.update(c, *size) + flops.recomputed(c, BATCH * TIME, BATCH * TIME**2, 0)
    # The optimizer's dozen operations a parameter are not in the formula.
    parameters = sum(x.size for x in jax.tree.leaves(state.params))
    assert_allclose(found, wanted + 15 * parameters, rtol=0.05)


def test_by_hand():
    c = policy.LlamaConfig(vocab_size=10, hidden=4, layers=3, heads=2, kv_heads=1, ffn=5)
    # A layer: q and o 4 x 4 each, k and v 4 x 2 each, the three of the mlp 4 x 5 each.
    assert flops.block_parameters(c) == 3 * (2 * 16 + 2 * 8 + 3 * 20)
    assert flops.matmul_parameters(c) == flops.block_parameters(c) + 40
    assert flops.causal_pairs([1, 3]) == 1 + 6
    # Scores and mixing: 2 heads of 2 numbers, twice, in 3 layers.
    assert flops.forward(c, 0, 7, 0) == 2 * 2 * (2 * 2) * 7 * 3
    assert flops.forward(c, 7, 0, 2) == 2 * 7 * flops.block_parameters(c) + 2 * 2 * 40
    assert flops.update(c, 7, 9, 2) == 3 * flops.forward(c, 7, 9, 2)
    assert flops.recomputed(c, 7, 9, 2) == 2 * 2 * 40
    again = flops.forward(c, 7, 9, 2) - 3 * 2 * 20 * 7
    assert flops.recomputed(replace(c, remat="block"), 7, 9, 2) == again
