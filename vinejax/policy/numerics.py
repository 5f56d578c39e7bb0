"""Products and norms with their precision written down.

XLA's default for fp32 operands is TF32 on recent GPUs and bf16 passes on TPUs, so "fp32" would
agree with nothing to more than three digits; fp32 operands therefore ask for the highest
precision. bf16 operands are multiplied as they are and accumulated in fp32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

_target: ContextVar[str | None] = ContextVar("target", default=None)


def platform() -> str:
    """The platform that programs are made for: the one they run on, unless `targeting` says."""
    return _target.get() or jax.default_backend()


@contextmanager
def targeting(name: str) -> Iterator[None]:
    """Programs traced in the block are made for platform `name`, to be compiled ahead of time.

    What JAX keeps of traced programs is dropped before and after: it does not know them apart.
    """
    jax.clear_caches()
    token = _target.set(name)
    try:
        yield
    finally:
        _target.reset(token)
        jax.clear_caches()


def precision_of(dtype: DTypeLike) -> jax.lax.Precision:
    """The precision that a product of operands of this type is computed with."""
    is_wide = jnp.dtype(dtype) == jnp.float32
    return jax.lax.Precision.HIGHEST if is_wide else jax.lax.Precision.DEFAULT


def matmul(
    x: Float[Array, "... I"], w: Float[Array, "I O"], result: DTypeLike | None = None
) -> Float[Array, "... O"]:
    """x @ w; `result` is the type of accumulation and result (the operands' own, if None).

    Leading axes are folded into one: as a plain matrix product its gradient needs no transposed
    copies, which makes it twice as fast on CPU.
    """
    rows = x.reshape(-1, x.shape[-1])
    dtype = jnp.dtype(result or x.dtype)
    # XLA:CPU uses the processor's bfloat16 instructions only if the product is fp32. Barrier and
    # rounding keep it from leaving out conversions to bfloat16 in one shape and not in another.
    rounds = dtype == jnp.bfloat16 and platform() == "cpu"
    kind = jnp.float32 if rounds else result
    if rounds:
        rows = jax.lax.optimization_barrier(rows)
    out = jnp.matmul(rows, w, precision=precision_of(x.dtype), preferred_element_type=kind)
    if rounds:
        out = jax.lax.reduce_precision(out, exponent_bits=8, mantissa_bits=7)
    return out.astype(dtype).reshape(*x.shape[:-1], w.shape[-1])


def logits(x: Float[Array, "... D"], matrix: Float[Array, "D V"]) -> Float[Array, "... V"]:
    """Hidden states times the head, accumulated and returned in fp32."""
    return matmul(x, matrix, jnp.float32)


def rms_norm(x: Float[Array, "... D"], weight: Float[Array, " D"], eps: float) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * weight; fp32 inside, x's type outside.

    The normalised value is rounded to x's type before the weight is applied, as transformers does.
    """
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    normed = (wide * scale).astype(x.dtype).astype(jnp.float32)
    return (normed * weight.astype(jnp.float32)).astype(x.dtype)
