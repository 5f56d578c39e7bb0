"""A decoder of one layer, eight rows of uneven length, and one update of it in every setting."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinejax import policy, update

TEMPERATURE = 0.6


@pytest.fixture(scope="session")
def config():
    return policy.LlamaConfig(
        vocab_size=24, num_tokens=20, hidden=16, layers=1, heads=4, kv_heads=2, ffn=32
    )


@pytest.fixture(scope="session")
def params(config):
    """Random weights, ten times the usual embedding so that distributions are far from uniform."""
    params = policy.init(config, jax.random.key(0))
    return {**params, "embed": 10 * params["embed"], "head": 30 * params["head"]}


@pytest.fixture(scope="session")
def hyper(config):
    """The paper's loss with an optimizer whose first step is nearly linear in the gradient.

    Adam's usual epsilon would turn the sign of a gradient of rounding size into a full step.
    """
    optimizer = update.Optimizer(
        learning_rate=1e-2, total_steps=10, decay="constant", eps=1e-1, max_grad_norm=1e6
    )
    return update.Hyper(config, optimizer, microbatch=8, kl=1e-2)


@pytest.fixture(scope="session")
def make_batch(config, params):
    def make(prompt=3, responses=(1, 4, 13, 2, 9, 5, 12, 7), width=16, seed=1):
        """Old and reference log-probabilities are the policy's own, with noise."""
        rng = np.random.default_rng(seed)
        length = prompt + np.array(responses)
        time = np.arange(width)
        tokens = jnp.asarray(rng.integers(0, config.num_tokens, (len(length), width)), jnp.int32)
        is_token = jnp.asarray(time < length[:, None])
        logp, _ = policy.sequence_logprobs(params, config, tokens, is_token, TEMPERATURE)
        noise = rng.normal(size=(2, *tokens.shape)) * 0.3
        return update.Batch(
            tokens=tokens,
            length=jnp.asarray(length, jnp.int32),
            is_response=is_token & jnp.asarray(time >= prompt),
            advantages=jnp.asarray(rng.normal(size=tokens.shape), jnp.float32),
            old_logp=logp + jnp.asarray(noise[0], jnp.float32),
            ref_logp=logp + jnp.asarray(noise[1], jnp.float32),
        )

    return make


@pytest.fixture(scope="session")
def batch(make_batch):
    return make_batch()


@pytest.fixture(scope="session")
def run(params, hyper):
    """One update from `params`: (metrics, clipped gradient, new parameters), on the host.

    Steps are compiled once for each setting; the fixtures' clip is out of the way.
    """

    compiled = functools.cache(lambda make, hyper, mesh: make(hyper, mesh).step)
    fresh = functools.cache(lambda hyper: jax.device_get(update.init(params, hyper)))

    def run(batch, mesh=None, make=update.make_step, hyper=hyper, **settings):
        hyper = replace(hyper, **settings)
        place = None if mesh is None else update.shardings(hyper, mesh)
        state = jax.device_put(fresh(hyper), place, may_alias=False)
        state, metrics = compiled(make, hyper, mesh)(state, batch)
        # The first moment after one update is (1 - b1) times the gradient.
        share = 1 - hyper.optimizer.b1
        gradient = jax.tree.map(lambda m: np.asarray(m) / share, state.opt_state[1].mu)
        return jax.device_get(metrics), gradient, jax.device_get(state.params)

    return run


@pytest.fixture(scope="session")
def assert_same():
    """Compare two results of `run` up to fp32 summation order.

    1e-5 of a loss or metric; of a leaf's largest gradient; and what that is in parameters, whose
    step is at most learning rate / epsilon = 0.1 of the gradient.
    """

    def check(a, b):
        for name, x in vars(a[0]).items():
            np.testing.assert_allclose(x, getattr(b[0], name), rtol=1e-5, atol=1e-6, err_msg=name)
        largest = max(np.abs(g).max() for g in jax.tree.leaves(a[1]))
        for i, tolerance in ((1, 1e-5), (2, 1e-6)):
            jax.tree.map(
                lambda x, y, t=tolerance: np.testing.assert_allclose(
                    x, y, atol=t * largest, rtol=1e-6
                ),
                a[i],
                b[i],
            )

    return check
