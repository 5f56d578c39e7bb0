"""The policy: a Llama-type decoder as pure functions, its scoring, and its Hugging Face files."""

from vinejax.policy.attention import default_backend
from vinejax.policy.config import LlamaConfig, Remat, RopeScaling
from vinejax.policy.folder import is_hub_id
from vinejax.policy.llama import (
    DecodeWeights,
    Params,
    block,
    cast,
    decode_axes,
    embed_tokens,
    forward,
    head,
    hidden,
    init,
    logical_axes,
    shapes,
    unstack,
)
from vinejax.policy.numerics import (
    logits,
    matmul,
    platform,
    precision_of,
    rms_norm,
    targeting,
)
from vinejax.policy.scoring import (
    LOGIT_BYTES,
    Cache,
    LogProbs,
    Scores,
    logprobs,
    score,
    sequence_logprobs,
)
from vinejax.policy.weights import load_config, load_hf, save_hf

__all__ = [
    "LOGIT_BYTES",
    "Cache",
    "DecodeWeights",
    "LlamaConfig",
    "LogProbs",
    "Params",
    "Remat",
    "RopeScaling",
    "Scores",
    "block",
    "cast",
    "decode_axes",
    "default_backend",
    "embed_tokens",
    "forward",
    "head",
    "hidden",
    "init",
    "is_hub_id",
    "load_config",
    "load_hf",
    "logical_axes",
    "logits",
    "logprobs",
    "matmul",
    "platform",
    "precision_of",
    "rms_norm",
    "save_hf",
    "score",
    "sequence_logprobs",
    "shapes",
    "targeting",
    "unstack",
]
