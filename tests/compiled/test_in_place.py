"""Caches are updated where they lie: the compiled loop of the sampler copies none of them."""

import jax
import pytest

from vinejax import compiled, policy, sampler, sharding
from vinejax.compiled import hlo, loops, phases

CELLS, TRUNKS = 48, 8


@pytest.mark.parametrize(
    "layout",
    [
        sampler.Layout(4, 4, ring=256),
        sampler.Layout(4, 4, ring=64),
        pytest.param(sampler.Layout(4, 4, ring=48), marks=pytest.mark.slow),
        pytest.param(sampler.Layout(4, 4, ring=16), marks=pytest.mark.slow),
        sampler.Layout(4, 4, ring=64, trunks_per_row=1),
        pytest.param(sampler.Layout(1, 16, ring=64), marks=pytest.mark.slow),
        pytest.param(sampler.Layout(16, 1, ring=64, trunks_per_row=1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_loop_copies_no_cache(layout: sampler.Layout):
    config = policy.LlamaConfig(
        vocab_size=40, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=24, ffn=48
    )
    settings = sampler.Settings(1.0, 0.9, eos_ids=(1,))
    mesh = sharding.make_mesh(1, devices=jax.devices()[:1])
    text = phases.sampling(config, settings, layout, CELLS, TRUNKS, 64, mesh).compile().as_text()
    loop, module = compiled.count(text or "").heaviest.name, hlo.parse(text or "")
    cells = layout.rows * min(layout.trunks_per_row * CELLS, layout.slots * layout.ring)
    size = config.kv_heads * config.head_dim * cells
    assert loops.copies(module, loop, "f32", size) == []
