"""Collectives read from the text of small programs, and their bytes by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from vinejax import policy, sampler, sharding, update
from vinejax.compiled import collectives, phases


def found(function, mesh, arguments, outputs) -> dict[str, dict[str, int]]:
    jitted = jax.jit(function, out_shardings=NamedSharding(mesh, outputs))
    text = jitted.lower(*arguments).compile().as_text()
    assert text is not None
    return collectives.summed(collectives.find(text, mesh.size))


def array(mesh, shape, *axes) -> jax.ShapeDtypeStruct:
    placed = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=placed)


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(2, 4, 1)


def test_a_sum_over_devices_sends_the_array_twice_but_for_a_devices_own_part(mesh):
    x = array(mesh, (4, 100), "fsdp")
    kinds = found(lambda x: x.sum(0), mesh, [x], PartitionSpec())
    assert kinds == {"all-reduce": {"count": 1, "bytes": 2 * 400 * 3 // 4}}


def test_gathering_shards_sends_all_other_shards(mesh):
    x = array(mesh, (8, 100), "fsdp")
    kinds = found(lambda x: x * 2, mesh, [x], PartitionSpec())
    assert kinds == {"all-gather": {"count": 1, "bytes": 3200 * 3 // 4}}


def test_a_loop_counts_its_trips(mesh):
    def sums(x):
        return jax.lax.scan(lambda c, row: (c + row.sum(), None), 0.0, x)[0]

    kinds = found(sums, mesh, [array(mesh, (5, 8), None, "fsdp")], PartitionSpec())
    assert kinds["all-reduce"]["count"] in (1, 5)  # summed once at the end, or in every trip


def test_nothing_is_sent_where_every_device_has_its_own_rows(mesh):
    x = array(mesh, (8, 100), ("data", "fsdp"))
    assert found(lambda x: x * 2, mesh, [x], PartitionSpec(("data", "fsdp"))) == {}


TEXT = """\
HloModule m

%all-reduce-scatter.1 (p: f32[8,4]) -> f32[2,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %z = s32[] constant(0)
  %all-reduce.1 = f32[8,4]{1,0} all-reduce(%p), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %s = f32[2,4]{1,0} dynamic-slice(%all-reduce.1, %z, %z), dynamic_slice_sizes={2,4}
}

ENTRY %main (a: f32[8,4]) -> f32[2,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %g = (f32[8,4]{1,0}, f32[16,4]{1,0}) all-gather-start(%a), replica_groups={{0,1},{2,3}}
  %d = f32[16,4]{1,0} all-gather-done(%g)
  %t = ((f32[8,4]{1,0}), f32[2,4]{1,0}) reduce-scatter-start(%a), replica_groups=[1,4]<=[4]
  %n = f32[8,4]{1,0} all-to-all(%a), replica_groups=mesh['x'=4,'y'=2,'z'=4] {'y','z':(2)2}
  %alone = f32[8,4]{1,0} all-reduce(%a), replica_groups={{0},{1}}, to_apply=%add
  ROOT %f = f32[2,4]{1,0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_the_spellings_of_accelerators_are_read():
    of = {c.kind: c for c in collectives.find(TEXT, 8)}
    assert (of["all-gather"].devices, of["all-gather"].whole) == (2, 256)
    assert of["all-to-all"].devices == 4
    assert "all-reduce" not in of  # one within a fusion that slices is a reduce-scatter
    scatters = [c for c in collectives.find(TEXT, 8) if c.kind == "reduce-scatter"]
    assert [(c.devices, c.whole, c.bytes) for c in scatters] == [(4, 128, 96)] * 2


def test_attributes_with_line_breaks_end_no_computation():
    """Those of Pallas kernels do, in what a TPU's compiler prints."""
    kernel = '  %k = f32[8,4]{1,0} custom-call(%a), frontend_attributes={x={\n"y":"z"\n}}, m={}\n'
    text = TEXT.replace("  %n =", f"{kernel}  %n =")
    assert collectives.find(text, 8) == collectives.find(TEXT, 8)


LOOP = """\
HloModule m

%condition (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
  %n = s32[] constant(7)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %sum = f32[8]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %sum)
}

ENTRY %main (a: (s32[], f32[8])) -> (s32[], f32[8]) {
  %a = (s32[], f32[8]{0}) parameter(0)
  ROOT %w = (s32[], f32[8]{0}) while(%a), condition=%condition, body=%body
}
"""


def test_a_loops_trips_are_read_from_its_condition_where_they_are_not_written_down():
    """A TPU's compiler leaves the count out."""
    (found,) = collectives.find(LOOP, 2)
    assert (found.times, found.in_loop) == (7, False)
    (open_,) = collectives.find(LOOP.replace("direction=LT", "direction=NE"), 2)
    assert (open_.times, open_.in_loop) == (1, True)


SHAPE = policy.LlamaConfig(
    vocab_size=64, hidden=32, layers=9, heads=4, kv_heads=2, ffn=48, remat="block"
)


@pytest.mark.parametrize(
    "sizes", [(2, 4, 1), *(pytest.param(s, marks=pytest.mark.slow) for s in [(2, 2, 2), (8, 1, 1)])]
)
def test_an_update_gathers_weights_and_never_rows(sizes):
    """Weights come together over fsdp, gradients are summed; rows stay where they are."""
    mesh = sharding.make_mesh(*sizes)
    hyper = update.Hyper(SHAPE, update.Optimizer(1e-3, 10), microbatch=8)
    rows, width = 16, 40
    text = phases.policy_update(hyper, rows, width, mesh).compile().as_text()
    found = collectives.find(text or "", mesh.size)
    weights = SHAPE.hidden * max(SHAPE.ffn, SHAPE.vocab_size) * 4
    own = 8 // (sizes[0] * sizes[1]) * width * SHAPE.hidden * 4  # activations of a device
    gathers = [c for c in found if c.kind == "all-gather"]
    assert bool(gathers) == (sizes[1] > 1)
    assert all(c.whole <= weights for c in gathers)
    changed = {"all-to-all"} if sizes[1] > 1 else set()  # widths for rows, at the embedding
    assert {c.kind for c in found} <= {"all-gather", "reduce-scatter", "all-reduce"} | changed
    if sizes[1] > 1:
        exchanged = [c.whole for c in found if c.kind == "all-to-all"]
        assert exchanged
        assert max(exchanged) <= own * sizes[1]


def test_devices_that_share_a_model_send_activations_and_logits_but_no_cache():
    """Two devices, one shard of sampling: each keeps its heads' KV to itself."""
    mesh = sharding.make_mesh(1, 1, 2, devices=jax.devices()[:2])
    layout = sampler.Layout(rows=2, slots=4, ring=64, chunk=16)
    lowered = phases.sampling(SHAPE, sampler.Settings(1.0), layout, 128, 4, 64, mesh)
    found = collectives.find(lowered.compile().as_text() or "", 2)
    slots = layout.rows * layout.slots
    assert found
    assert max(c.whole for c in found) <= 4 * slots * max(SHAPE.vocab_size, SHAPE.hidden)
    ring = 4 * slots * SHAPE.kv_heads * layout.ring * (SHAPE.hidden // SHAPE.heads)
    assert ring > 4 * slots * max(SHAPE.vocab_size, SHAPE.hidden)  # it would be noticed
