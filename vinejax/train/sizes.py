"""How large a model's parts are: parameters, and estimates in bytes, rounded up.

What a program really takes is what `experiments.plan` reads from the compiled one.
"""

import math
from typing import Any

import jax

from vinejax import policy
from vinejax.config import Config
from vinejax.sampler.bank import ATTENTION_BYTES, TOKENS


def parameters(model: policy.LlamaConfig) -> int:
    """How many the model has."""
    leaves = jax.tree.leaves(policy.shapes(model), is_leaf=lambda x: isinstance(x, tuple))
    return sum(math.prod(shape) for shape in leaves)


def state_bytes(config: Config, model: policy.LlamaConfig) -> int:
    """fp32 parameters and both moments, the critic's too, of all shards together."""
    each = 8 + (2 if config.update.first_moment == "bfloat16" else 4)
    critic = config.algorithm == "ppo"
    head = 0 if model.tied else model.hidden * model.vocab_size  # which a critic has not
    return each * (parameters(model) * (1 + critic) - critic * head)


def copy_bytes(model: policy.LlamaConfig) -> int:
    """The sampler's weights and the reference's, in compute dtype."""
    return 2 * _width(model) * parameters(model)


def kv_bytes(model: policy.LlamaConfig) -> int:
    """Keys and values of a token."""
    width = 2 if model.cache_dtype == "bfloat16" else 4
    return 2 * width * model.layers * model.kv_heads * model.head_dim


def kept_bytes(model: policy.LlamaConfig, remat: policy.Remat, tensor: int) -> int:
    """What the forward pass of all layers keeps of a token for the backward pass."""
    d, f = model.hidden, model.ffn / tensor
    a, g = (n * model.head_dim / tensor for n in (model.heads, model.kv_heads))
    kept: float = d
    if remat != "block":
        kept += 2 * d + a + 2 * g + 2 * f
    if remat == "none":
        # Norms and their fp32 insides, rotated heads, what attention returns, the gated product.
        kept += 14 * d + 2 * a + g + 3 * f
    return round(_width(model) * kept * model.layers)


def passing_bytes(model: policy.LlamaConfig, tensor: int) -> int:
    """What one layer's forward and backward pass takes of a token while it is worked on."""
    inner = (model.ffn * 4 + (model.heads + model.kv_heads) * model.head_dim * 3) / tensor
    return round(_width(model) * (inner + 8 * model.hidden))


def head_bytes(model: policy.LlamaConfig, mesh: Any) -> int:
    """The head in whole, its gradient, chunks of logits, and a layer's weights and gradients."""
    head = model.hidden * model.vocab_size
    layer = (parameters(model) - 2 * head) // model.layers
    chunks = 2 * policy.LOGIT_BYTES
    gathered = (12 * head + 10 * layer) // mesh.tensor if mesh.fsdp > 1 else 12 * head
    return chunks + gathered


def scoring_bytes(model: policy.LlamaConfig, tensor: int) -> int:
    """Activations of a pass that scores, scores of attention and logits included."""
    scores = ATTENTION_BYTES if model.attention == "xla" else 0
    return TOKENS * passing_bytes(model, tensor) + scores + 2 * policy.LOGIT_BYTES


def _width(model: policy.LlamaConfig) -> int:
    return 2 if model.compute_dtype == "bfloat16" else 4
