"""Shards of sampling that are several devices: heads, KV and vocabulary split over `tensor`."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import policy, rng, sampler, sharding
from vinejax.train import scoring
from vinejax.train.shards import Shards

MODEL = policy.LlamaConfig(vocab_size=64, hidden=32, layers=2, heads=4, kv_heads=2, ffn=48)
LAYOUT = sampler.Layout(rows=2, slots=4, ring=16, chunk=16)
NEW = 24  # longer than the ring: some are re-rooted


@pytest.fixture(scope="module")
def trunks() -> sampler.Trunks:
    numbers = np.random.default_rng(0)
    return sampler.Trunks.of([numbers.integers(0, 64, n) for n in (5, 9, 3, 7)])


def on(mesh: tuple[int, int, int]) -> tuple[Shards, policy.DecodeWeights]:
    """Shards of a mesh, and weights as they lie on it."""
    made = sharding.make_mesh(*mesh, devices=jax.devices()[: int(np.prod(mesh))])
    weights = policy.unstack(policy.init(MODEL, rng.key(0)), MODEL)
    placed = sharding.shardings(made, policy.decode_axes(MODEL))
    return Shards.of(made), jax.device_put(weights, placed)


def sampled(mesh: tuple[int, int, int], trunks: sampler.Trunks) -> sampler.Samples:
    shards, weights = on(mesh)
    jobs = sampler.Jobs.at_ends(trunks, 3, NEW)
    settings = sampler.Settings(1.0, 0.9, eos_ids=(1,))
    return shards.sample(weights, MODEL, trunks, jobs, settings, rng.key(1), layout=LAYOUT, wave=4)


@pytest.mark.parametrize("mesh", [pytest.param((1, 1, 2), marks=pytest.mark.slow), (2, 1, 2)])
def test_devices_that_share_a_model_sample_what_one_does(mesh, trunks):
    alone, together = sampled((1, 1, 1), trunks), sampled(mesh, trunks)
    assert alone.counters.rerooted > 0
    assert_array_equal(together.tokens, alone.tokens)
    assert_array_equal(together.finish, alone.finish)
    assert_allclose(together.logprob_full, alone.logprob_full, atol=1e-5)


def test_scores_and_kv_are_those_of_one_device_and_each_holds_its_heads(trunks):
    def scored(mesh):
        shards, weights = on(mesh)
        return shards.run(
            lambda own, _, leads: scoring.score(own, MODEL, trunks.tokens, 1.0, 16, True),
            weights,
            4,
        )[0]

    (alone, cache), (together, split) = scored((1, 1, 1)), scored((1, 1, 2))
    assert_allclose(together.logp, alone.logp, atol=1e-5)
    assert_allclose(together.entropy, alone.entropy, atol=1e-5)
    assert cache is not None
    assert split is not None
    for ours, theirs in zip(split[1], cache[1], strict=True):
        assert_allclose(ours, theirs, atol=1e-5)
        assert {s.data.shape[1] for s in ours.addressable_shards} == {MODEL.kv_heads // 2}


def test_weights_of_a_shard_are_split_and_not_copied(trunks):
    shards, weights = on((2, 1, 2))
    assert [mesh.size for mesh in shards.meshes] == [2, 2]
    heads = shards.run(lambda own, part, leads: own["layers"][0]["wq"], weights, 2)
    for own, mesh in zip(heads, shards.meshes, strict=True):
        assert own.sharding.device_set == set(mesh.devices.flat)
        assert {s.data.shape for s in own.addressable_shards} == {(32, 16)}
