"""NVIDIA's decode attention is taken where it is right on the device at hand, and nowhere else."""

import jax
import jax.numpy as jnp
import pytest

from vinejax import policy, sampler
from vinejax.sampler import choice, kernel

CONFIG = policy.LlamaConfig(
    vocab_size=64, hidden=64, layers=1, heads=4, kv_heads=2, head_dim=64, ffn=64,
    compute_dtype="bfloat16",
)  # fmt: skip


def imitation(fault=""):
    """What cuDNN's kernel returns, by plain JAX; with a fault on request."""

    def run(q, keys, values, where):
        if fault == "raises":
            raise RuntimeError("no such kernel")
        if fault == "sees a cell too many":
            where = where | jnp.roll(where, 1, axis=-1)
        scores = jnp.einsum("ngqh,ngch->ngqc", q, keys, preferred_element_type=jnp.float32)
        scores *= q.shape[-1] ** -0.5 * (1.02 if fault == "scale" else 1)
        scores = jnp.where(where, scores, -1e30)
        weight = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        out = jnp.einsum("ngqc,ngch->ngqh", weight.astype(jnp.bfloat16), values)
        out = out / weight.sum(axis=-1)[..., None]
        total = jax.nn.logsumexp(scores, axis=-1)
        total = jnp.zeros_like(total) if fault == "no sums" else total
        return (out * jnp.nan if fault == "NaN" else out).astype(jnp.bfloat16), total

    return run


@pytest.fixture
def on_a_gpu(monkeypatch):
    choice.agrees.cache_clear()
    monkeypatch.setattr(policy, "platform", lambda: "gpu")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield
    choice.agrees.cache_clear()


def test_a_kernel_that_agrees_is_taken(on_a_gpu, monkeypatch):
    monkeypatch.setattr(kernel, "_cudnn", imitation())
    assert sampler.decode_attention(CONFIG) == "cudnn"


@pytest.mark.parametrize("fault", ["raises", "sees a cell too many", "scale", "no sums", "NaN"])
def test_a_kernel_that_is_wrong_or_does_not_run_is_not_taken(fault, on_a_gpu, monkeypatch, caplog):
    monkeypatch.setattr(kernel, "_cudnn", imitation(fault))
    assert sampler.decode_attention(CONFIG) == "xla"
    assert "no cuDNN attention in decoding" in caplog.text


def test_other_platforms_and_types_are_not_even_tried(monkeypatch):
    monkeypatch.setattr(kernel, "_cudnn", imitation("raises"))
    assert sampler.decode_attention(CONFIG) == "xla"
    monkeypatch.setattr(policy, "platform", lambda: "tpu")
    assert sampler.decode_attention(CONFIG) == "xla"
