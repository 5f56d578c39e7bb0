"""The implementations of attention agree, in value and gradient; each is run where it can be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vinejax import sharding
from vinejax.policy import attention, default_backend

SHAPE = {"batch": 2, "heads": 4, "groups": 2, "size": 16}


def arrays(time):
    keys = jax.random.split(jax.random.key(0), 3)
    b, n, g, h = SHAPE.values()
    q = jax.random.normal(keys[0], (b, time, n, h))
    k, v = (jax.random.normal(key, (b, time, g, h)) for key in keys[1:])
    return q, k, v


def seen(time):
    """Two packed sequences and padding behind them; a row of one sequence."""
    where = jnp.arange(time)[None] < jnp.array([time - 5, time])[:, None]
    segments = jnp.stack([1 + (jnp.arange(time) >= 7), jnp.ones(time, int)])
    return where, segments.astype(jnp.int32)


def compare(other, time, atol, dtype=jnp.float32):
    where, segments = seen(time)
    inputs = tuple(x.astype(dtype) for x in arrays(time))

    def loss(function, q, k, v):
        out = function(q, k, v, where, segments).astype(jnp.float32)
        return jnp.sum(jnp.where(where[:, :, None, None], jnp.sin(3 * out), 0)), out

    results = [
        jax.value_and_grad(lambda *a, f=f: loss(f, *a), argnums=(0, 1, 2), has_aux=True)(*inputs)
        for f in (attention.causal, other)
    ]
    (((_, out), gradient), ((_, theirs), their_gradient)) = results
    kept = np.asarray(where)
    assert_allclose(np.asarray(out)[kept], np.asarray(theirs)[kept], atol=atol)
    for a, b in zip(gradient, their_gradient, strict=True):
        a, b = (np.asarray(x, np.float32)[kept] for x in (a, b))
        assert_allclose(a, b, atol=10 * atol)


@pytest.mark.parametrize("time", [pytest.param(40, marks=pytest.mark.slow), 128])
def test_the_tpu_kernel_equals_plain_attention(time):
    """Interpreted, which is slow, but the same kernel."""

    def splash(q, k, v, where, segments):
        k, v = (jnp.where(where[:, :, None, None], x, 0) for x in (k, v))
        return attention._splash(q, k, v, where, segments, interpret=True)

    compare(splash, time, atol=2e-5)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs an NVIDIA device")
def test_cudnn_equals_plain_attention():
    def cudnn(q, k, v, where, segments):
        return attention.causal(q, k, v, where, segments, "cudnn")

    compare(cudnn, 128, atol=2e-2, dtype=jnp.bfloat16)


def test_each_platform_has_its_own():
    assert default_backend("cpu", "float32") == "xla"
    assert default_backend("gpu", "bfloat16") == "cudnn"
    assert default_backend("gpu", "float32") == "xla"
    assert default_backend("tpu", "bfloat16") == "splash"


def test_on_a_mesh_the_tpu_kernel_runs_on_each_devices_own_rows_and_heads():
    mesh = sharding.make_mesh(1, 2, 2, devices=jax.devices()[:4])
    rng = np.random.default_rng(3)
    q, k, v = (jnp.asarray(rng.normal(size=(2, 128, n, 16)), jnp.float32) for n in (4, 2, 2))
    where = jnp.arange(128)[None] < jnp.array([[128], [70]])

    def split(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        with sharding.within(mesh):
            return attention._splash(q, k, v, where, None, interpret=True)

    found = jax.jit(split)(*jax.device_put((q, k, v), sharding.batch(mesh)))
    expected = np.where(where[..., None, None], attention.causal(q, k, v, where), 0)
    assert_allclose(np.where(where[..., None, None], found, 0), expected, atol=2e-5, rtol=1e-4)
