"""The benchmarked decoder with random weights, for the engines that run on JAX."""

from typing import Any

import jax

from benchmarks.engines.constants import EOS, norm_weight
from benchmarks.workload import Shape
from vinejax import policy, rng
from vinejax.sampler import Settings
from vinejax.stop import StopTable

STOP = "\n\n\nProblem:"


def config(shape: Shape, tied: bool = True, **settings: Any) -> policy.LlamaConfig:
    """The decoder of a shape, in fp32 unless `settings` say otherwise."""
    return policy.LlamaConfig(
        vocab_size=shape.vocab,
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        tied=tied,
        eos_id=EOS,
        **settings,
    )


def weights(model: policy.LlamaConfig, logit_spread: float) -> policy.DecodeWeights:
    """Random weights whose logits over the vocabulary have the standard deviation asked for.

    The head has zeros for EOS, so its logit is 0: it is never in a nucleus.
    """

    @jax.jit
    def make(key: jax.Array) -> policy.DecodeWeights:
        params = policy.init(model, key)
        params["final_norm"] *= norm_weight(model.hidden, logit_spread)
        if model.tied:
            params["embed"] = params["embed"].at[EOS].set(0.0)
        else:
            params["head"] = params["head"].at[:, EOS].set(0.0)
        return policy.unstack(params, model)

    return jax.block_until_ready(make(rng.key(0)))


def settings(model: policy.LlamaConfig, temperature: float, top_p: float) -> Settings:
    """Sampling with an end-of-sequence id and a stop string, neither of which ever comes."""
    pieces = [f" w{i}".encode() for i in range(model.vocab_size)]
    table = StopTable.build((STOP,), pieces)
    return Settings(temperature=temperature, top_p=top_p, eos_ids=(EOS,), stop=table)
