"""What a compiled program costs: bytes from its text, floating-point operations by formula."""

from vinejax.compiled import flops
from vinejax.compiled.bytes import Loop, Moved, Traffic, count

__all__ = ["Loop", "Moved", "Traffic", "count", "flops"]
