"""What is found in a loop: small texts by hand."""

from vinejax.compiled import hlo, loops

TEXT = """HloModule m

%fused (p: bf16[64,8]) -> bf16[8,64] {
  %p = bf16[64,8]{1,0} parameter(0)
  ROOT %t = bf16[8,64]{1,0} transpose(%p), dimensions={1,0}
}

%doing (p: bf16[64,8]) -> bf16[64,8] {
  %p.1 = bf16[64,8]{1,0} parameter(0)
  %c = bf16[64,8]{1,0} copy(%p.1)
  ROOT %e = bf16[64,8]{1,0} exponential(%c)
}

%inner_body (p: bf16[64,8]) -> bf16[64,8] {
  %q = bf16[64,8]{1,0} parameter(0)
  ROOT %scattered = bf16[64,8]{1,0} scatter(%q, %q, %q), to_apply=%fused
}

%inner_condition (p: bf16[64,8]) -> pred[] {
  %r = bf16[64,8]{1,0} parameter(0)
  ROOT %no = pred[] constant(false)
}

%body (p: bf16[64,8]) -> bf16[64,8] {
  %b = bf16[64,8]{1,0} parameter(0)
  %whole = bf16[64,8]{0,1} copy(%b)
  %small = bf16[8,8]{1,0} copy(%b)
  %fetched = bf16[64,8]{1,0:T(8,128)S(1)} copy(%b)
  %start = (bf16[64,8]{1,0:T(8,128)S(1)}, bf16[64,8]{1,0}, u32[]) copy-start(%b)
  %returned = bf16[64,8]{1,0} copy(%fetched)
  %turned = bf16[8,64]{1,0} fusion(%b), kind=kLoop, calls=%fused
  %done = bf16[64,8]{1,0} fusion(%b), kind=kLoop, calls=%doing
  ROOT %w = bf16[64,8]{1,0} while(%done), condition=%inner_condition, body=%inner_body
}

%condition (p: bf16[64,8]) -> pred[] {
  %s = bf16[64,8]{1,0} parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (a: bf16[64,8]) -> bf16[64,8] {
  %a = bf16[64,8]{1,0} parameter(0)
  %before = bf16[64,8]{0,1} copy(%a)
  ROOT %loop = bf16[64,8]{1,0} while(%before), condition=%condition, body=%body
}
"""


def test_copies_are_those_of_the_loop_that_do_nothing_else():
    module = hlo.parse(TEXT)
    assert loops.copies(module, "loop", "bf16", 512) == ["whole", "turned"]
    assert loops.copies(module, "loop", "bf16", 64) == ["whole", "small", "turned"]
    assert loops.copies(module, "loop", "f32", 64) == []


def test_what_is_written_back_from_the_chip_is_told_apart():
    module = hlo.parse(TEXT)
    assert loops.write_backs(module, "loop", "bf16", 512) == ["returned"]


def test_inner_loops_are_looked_into():
    module = hlo.parse(TEXT)
    assert loops.with_opcode(module, "loop", "scatter") == ["scattered"]
    assert loops.with_opcode(module, "loop", "transpose") == ["turned"]
    assert loops.with_opcode(module, "w", "copy") == []
