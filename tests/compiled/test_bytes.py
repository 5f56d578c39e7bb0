"""The byte counter: small compiled programs, and texts as accelerators print them, by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from vinejax import compiled
from vinejax.compiled import hlo

F32 = 4


def traffic(function, *arguments, donate=()) -> compiled.Traffic:
    lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
    return compiled.count(lowered.compile().as_text() or "")


def text(body: str, *others: str) -> str:
    """An HLO module with `body` as its entry computation."""
    parts = [f"{other.strip()}\n" for other in others]
    return "HloModule m\n\n" + "\n".join(parts) + f"\nENTRY %main () -> f32[] {{\n{body}\n}}\n"


def test_a_matrix_product_reads_both_and_writes_one():
    x, w = jnp.ones((64, 256)), jnp.ones((256, 512))
    out = traffic(lambda x, w: x @ w, x, w)
    assert out.bytes_once == F32 * (64 * 256 + 256 * 512 + 64 * 512)
    assert out.loops == ()


@pytest.mark.parametrize("is_fused", [False, True])
def test_an_update_in_place_counts_its_slice(is_fused: bool):
    cache, new = jnp.zeros((1024, 1024)), jnp.ones((1, 1024))

    def update(cache, new, at):
        return lax.dynamic_update_slice(cache, jnp.sin(new) if is_fused else new, (at, 0))

    out = traffic(update, cache, new, jnp.int32(3), donate=0)
    # A few index bytes besides.
    assert 2 * F32 * 1024 <= out.bytes_once <= 2 * F32 * 1024 + 64


def test_an_update_that_is_not_in_place_shows_its_copy():
    cache, new = jnp.zeros((1024, 1024)), jnp.ones((1, 1024))
    out = traffic(lambda c, n, at: lax.dynamic_update_slice(c, n, (at, 0)), cache, new, 3)
    assert out.bytes_once >= 2 * cache.nbytes


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_slice_counts_what_it_takes(is_fused: bool):
    bank = jnp.zeros((1024, 1024))

    def take(bank, at):
        row = lax.dynamic_slice_in_dim(bank, at, 1)
        return jnp.sin(row) + 1 if is_fused else row

    out = traffic(take, bank, jnp.int32(3))
    assert 2 * F32 * 1024 <= out.bytes_once <= 2 * F32 * 1024 + 64


def test_a_gather_counts_its_rows():
    table, ids = jnp.zeros((1000, 256)), jnp.arange(8)
    out = traffic(lambda t, i: t[i], table, ids)
    assert 2 * F32 * 8 * 256 <= out.bytes_once <= 2 * F32 * 8 * 256 + 40 * 8


def test_a_loop_counts_one_trip_and_knows_its_trips():
    w = jnp.ones((256, 256))

    def run(x, w):
        return lax.fori_loop(0, 7, lambda _, x: jnp.sin(x @ w), x)

    out = traffic(run, jnp.ones((64, 256)), w)
    [loop] = out.loops
    step = F32 * (256 * 256 + 4 * 64 * 256)
    assert loop.trips == 7
    assert step <= loop.bytes <= step + 64
    assert out.heaviest is loop
    assert out.step_bytes(loop.name) == loop.bytes


def test_loops_within_loops_are_reported_apart():
    w = jnp.ones((256, 256))

    def inner(x):
        return lax.fori_loop(0, 3, lambda _, x: x @ w, x)

    def run(x, n):
        return lax.while_loop(
            lambda c: c[1] < n, lambda c: (jnp.sin(inner(c[0])), c[1] + 1), (x, 0)
        )[0]

    out = traffic(run, jnp.ones((64, 256)), 5)
    outer = next(loop for loop in out.loops if not loop.inside)
    inside = next(loop for loop in out.loops if loop.inside)
    assert (outer.trips, inside.inside) == (None, outer.name)
    assert out.step_bytes(outer.name) == outer.bytes + 3 * inside.bytes
    assert out.loops.index(outer) < out.loops.index(inside)


def test_trips_that_nobody_knows_count_as_asked():
    cond = """%cond (p: (s32[])) -> pred[] {
  %p = (s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %lt = pred[] compare(%i, %i), direction=LT
}"""
    body = """%body (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %big = f32[100]{0} broadcast(%i), dimensions={}
  %inner = (s32[]) while(%p), condition=%cond, body=%small
  ROOT %t = (s32[]) tuple(%i)
}"""
    small = """%small (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] negate(%i)
  ROOT %t = (s32[]) tuple(%n)
}"""
    main = (
        "  %x = (s32[]) parameter(0)\n  ROOT %loop = (s32[]) while(%x), condition=%cond, body=%body"
    )
    out = compiled.count(text(main, cond, small, body))
    outer = (4 + 400) + (4 + 4 + 1)
    inner = (4 + 4) + (4 + 4 + 1)
    assert out.step_bytes("loop") == outer
    assert out.step_bytes("loop", unknown_trips=2) == outer + 2 * inner


def test_a_whole_copy_in_a_loop_is_seen():
    body = """%body (p: (f32[1000], s32[])) -> (f32[1000], s32[]) {
  %p = (f32[1000]{0}, s32[]) parameter(0)
  %c = f32[1000]{0} get-tuple-element(%p), index=0
  %i = s32[] get-tuple-element(%p), index=1
  %copy.1 = f32[1000]{0} copy(%c)
  ROOT %t = (f32[1000]{0}, s32[]) tuple(%copy.1, %i)
}"""
    cond = """%cond (p: (f32[1000], s32[])) -> pred[] {
  %p = (f32[1000]{0}, s32[]) parameter(0)
  ROOT %yes = pred[] constant(true)
}"""
    main = """  %x = (f32[1000]{0}, s32[]) parameter(0)
  ROOT %w = (f32[1000]{0}, s32[]) while(%x), condition=%cond, body=%body"""
    [loop] = compiled.count(text(main, body, cond)).loops
    [copy] = loop.moved
    assert (copy.name, copy.read, copy.written) == ("copy.1", 4000, 4000)
    assert "copy" in copy.opcodes


def test_a_fusion_with_two_updates_in_place_and_an_update_of_an_update():
    fused = """%fused (a: f32[50,8], b: f32[8,50], u: f32[1,8], i: s32[]) -> (f32[50,8]) {
  %a = f32[50,8]{1,0} parameter(0)
  %b = f32[8,50]{1,0} parameter(1)
  %u = f32[1,8]{1,0} parameter(2)
  %i = s32[] parameter(3)
  %z = s32[] constant(0)
  %d.1 = f32[50,8]{1,0} dynamic-update-slice(%a, %u, %i, %z)
  %d.2 = f32[50,8]{1,0} dynamic-update-slice(%d.1, %u, %z, %z)
  %v = f32[8,1]{1,0} bitcast(%u)
  %d.3 = f32[8,50]{1,0} dynamic-update-slice(%b, %v, %z, %i)
  ROOT %t = (f32[50,8]{1,0}, f32[8,50]{1,0}) tuple(%d.2, %d.3)
}"""
    main = """  %a = f32[50,8]{1,0} parameter(0)
  %b = f32[8,50]{1,0} parameter(1)
  %u = f32[1,8]{1,0} parameter(2)
  %i = s32[] parameter(3)
  ROOT %f = (f32[50,8]{1,0}, f32[8,50]{1,0}) fusion(%a, %b, %u, %i), kind=kLoop, calls=%fused"""
    [moved] = compiled.count(text(main, fused)).once
    assert moved.written == 3 * 32  # the three slices
    assert moved.read == 32 + 4  # the update and its place


def test_an_update_of_what_was_changed_first_writes_everything():
    fused = """%fused (a: f32[50,8], u: f32[1,8], i: s32[]) -> f32[50,8] {
  %a = f32[50,8]{1,0} parameter(0)
  %u = f32[1,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %n = f32[50,8]{1,0} negate(%a)
  ROOT %d = f32[50,8]{1,0} dynamic-update-slice(%n, %u, %i, %i)
}"""
    main = """  %a = f32[50,8]{1,0} parameter(0)
  %u = f32[1,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %f = f32[50,8]{1,0} fusion(%a, %u, %i), kind=kLoop, calls=%fused"""
    [moved] = compiled.count(text(main, fused)).once
    assert (moved.read, moved.written) == (1600 + 32 + 4, 1600)


def test_accelerator_layouts_padding_and_memory_on_the_chip():
    padded = "bf16[3,64]{1,0:T(8,128)(2,1)}"
    assert hlo.parse(text(f"  ROOT %x = {padded} parameter(0)")).computations[
        "main"
    ].root.bytes == (8 * 128 * 2)
    main = f"""  %x = {padded} parameter(0)
  %start = (bf16[3,64]{{1,0:T(8,128)(2,1)S(1)}}, {padded}, u32[]{{:S(2)}}) copy-start(%x)
  ROOT %done = bf16[3,64]{{1,0:T(8,128)(2,1)S(1)}} copy-done(%start)"""
    [moved] = compiled.count(text(main)).once
    assert (moved.read, moved.written) == (2048, 0)  # into memory on the chip


def test_gpu_library_calls_and_collectives():
    main = """  %x = bf16[8,16]{1,0} parameter(0)
  %w = bf16[16,4]{1,0} parameter(1)
  %gemm = (bf16[8,4]{1,0}, s8[4194304]{0}) custom-call(%x, %w), custom_call_target="__cublas$gemm"
  %y = bf16[8,4]{1,0} get-tuple-element(%gemm), index=0
  %start = (bf16[8,4]{1,0}, bf16[16,4]{1,0}) all-gather-start(%y), dimensions={0}
  ROOT %done = bf16[16,4]{1,0} all-gather-done(%start)"""
    gemm, gather = compiled.count(text(main)).once
    assert (gemm.read, gemm.written) == (256 + 128, 64)
    assert (gather.read, gather.written) == (64, 128)


def test_texts_with_types_of_operands_and_branches():
    branch = """%{name} (p: f32[{n}]) -> f32[{n}] {{
  %p = f32[{n}]{{0}} parameter(0)
  ROOT %r = f32[{n}]{{0}} negate(f32[{n}]{{0}} %p)
}}"""
    main = """  %i = s32[] parameter(0)
  %a = f32[10]{0} parameter(1)
  %b = f32[20]{0} parameter(2)
  ROOT %c = f32[] conditional(s32[] %i, f32[10] %a, f32[20] %b), branch_computations={%f, %g}"""
    branches = [branch.format(name=n, n=size) for n, size in (("f", 10), ("g", 20))]
    assert compiled.count(text(main, *branches)).bytes_once == 2 * 80  # the larger one


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        compiled.count("HloModule m")


def test_a_fusion_reads_what_its_slices_take_through_a_sum():
    fused = """
%f (p: f32[4,8,100]) -> f32[8,10] {
  %p = f32[4,8,100]{2,1,0} parameter(0)
  %zero = f32[] constant(0)
  %r = f32[8,100]{1,0} reduce(%p, %zero), dimensions={0}, to_apply=%sum
  %e = f32[8,100]{1,0} exponential(%r)
  ROOT %s = f32[8,10]{1,0} slice(%e), slice={[0:8], [20:30]}
}
"""
    body = """
  %a = f32[4,8,100]{2,1,0} parameter(0)
  ROOT %x = f32[8,10]{1,0} fusion(%a), kind=kLoop, calls=%f
"""
    (moved,) = compiled.count(text(body, fused)).once
    assert (moved.read, moved.written) == (F32 * 4 * 8 * 10, F32 * 8 * 10)


def test_a_slice_fetched_to_the_chip_is_read_once():
    body = """
  %w = bf16[2048,2048]{1,0:T(8,128)(2,1)} parameter(0)
  %s = ((bf16[2048,2048]{1,0:T(8,128)(2,1)}), bf16[512,2048]{1,0:T(8,128)(2,1)S(1)}, s32[]{:S(2)}) slice-start(%w), slice={[0:512], [0:2048]}
  ROOT %d = bf16[512,2048]{1,0:T(8,128)(2,1)S(1)} slice-done(%s)
"""  # noqa: E501
    (moved,) = compiled.count(text(body)).once
    assert (moved.read, moved.written) == (2 * 512 * 2048, 0)
