"""The shape of a Llama-type decoder, and its translation from and to a Hugging Face `config.json`.

`LlamaConfig.from_hf` reads what transformers 4 and 5 write and refuses by name everything that this
decoder would compute differently; `to_hf` is its inverse. Nothing here reads files or weights.
"""

from dataclasses import dataclass
from typing import Any, Literal

from vinejax.config import UserError

_MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
}
_ARCHITECTURES = {kind: name for name, kind in _MODEL_TYPES.items()}
_COMPUTE_DTYPES = ("float32", "bfloat16")


Attention = Literal["xla", "cudnn", "splash"]  # implementations of `policy.attention`
# What the backward pass computes again: nothing, all of a block but its weight products, or all.
Remat = Literal["none", "dots", "block"]


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched: `linear` divides all, `llama3` only the slow ones.

    The last three fields belong to `llama3` and have transformers' meaning (wave lengths are
    compared with `original_max_positions` divided by the two frequency factors).
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192

    @classmethod
    def from_hf(cls, raw: dict[str, Any] | None) -> "RopeScaling | None":
        """Read `rope_scaling` or `rope_parameters` (transformers 5); null, `default`: None."""
        if raw is None:
            return None
        kind = raw.get("rope_type", raw.get("type"))
        if raw.get("partial_rotary_factor", 1.0) != 1.0:
            raise _unsupported("partial_rotary_factor", raw["partial_rotary_factor"], "1.0")
        if kind == "default" or (kind is None and set(raw) <= {"rope_theta"}):
            return None
        if kind == "linear":
            return cls("linear", _number(raw, "factor", "rope_scaling."))
        if kind == "llama3":
            return cls(
                "llama3",
                _number(raw, "factor", "rope_scaling."),
                _number(raw, "low_freq_factor", "rope_scaling."),
                _number(raw, "high_freq_factor", "rope_scaling."),
                _integer(raw, "original_max_position_embeddings", "rope_scaling."),
            )
        raise _unsupported("rope_scaling", kind, "null, linear or llama3")

    def to_hf(self) -> dict[str, Any]:
        """The `rope_scaling` entry that transformers 4 and 5 both read."""
        if self.kind == "linear":
            return {"rope_type": "linear", "factor": self.factor}
        return {
            "rope_type": self.kind,
            "factor": self.factor,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_position_embeddings": self.original_max_positions,
        }


@dataclass(frozen=True)
class LlamaConfig:
    """One decoder's shape and settings; hashable, so a static argument of `jax.jit`.

    `num_tokens` is the number of ids that exist: embedding rows from there on are padding, are
    never sampled and get no probability (0 means all `vocab_size` rows exist). `compute_dtype` is
    the type of matrix products; parameters keep their own. Caches hold keys and values in
    `kv_dtype` (None: in `compute_dtype`). `attention` names the implementation for whole sequences,
    see `policy.attention`, and `decode_attention` that of a decoding step, where cudnn needs caches
    in bfloat16. `remat` says what of a block the gradient recomputes.
    """

    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    head_dim: int = 0  # 0: hidden // heads
    num_tokens: int = 0
    norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = False
    qkv_bias: bool = False
    max_positions: int = 2048
    compute_dtype: str = "float32"
    kv_dtype: str | None = None
    attention: Attention = "xla"
    decode_attention: Literal["xla", "cudnn"] = "xla"
    remat: Remat = "none"
    model_type: str = "llama"
    bos_id: int | None = None
    eos_id: int | tuple[int, ...] | None = None
    pad_id: int | None = None

    def __post_init__(self) -> None:
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise UserError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}: every "
                "key/value head serves as many query heads as the others; change one of the two"
            )
        if not self.head_dim:
            if self.hidden % self.heads:
                raise UserError(
                    f"hidden={self.hidden} is not a multiple of heads={self.heads}: "
                    "give head_dim explicitly"
                )
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if self.head_dim % 2:
            raise UserError(f"head_dim={self.head_dim} is odd: rotary positions need pairs")
        if not self.num_tokens:
            object.__setattr__(self, "num_tokens", self.vocab_size)
        if not 0 < self.num_tokens <= self.vocab_size:
            raise UserError(
                f"num_tokens={self.num_tokens} does not fit an embedding of {self.vocab_size} rows "
                "(vocab_size): the tokenizer belongs to another model; give the model's own"
            )
        for name, dtype in (("compute_dtype", self.compute_dtype), ("kv_dtype", self.cache_dtype)):
            if dtype not in _COMPUTE_DTYPES:
                raise UserError(
                    f"{name}={dtype!r} is unknown: use one of " + ", ".join(_COMPUTE_DTYPES)
                )
        if self.model_type not in _ARCHITECTURES:
            raise _unsupported("model_type", self.model_type, ", ".join(_ARCHITECTURES))

    @property
    def cache_dtype(self) -> str:
        """The type of cached keys and values."""
        return self.kv_dtype or self.compute_dtype

    @classmethod
    def from_hf(
        cls, raw: dict[str, Any], compute_dtype: str = "float32", remat: Remat = "none"
    ) -> "LlamaConfig":
        """Translate a parsed `config.json`. Raises UserError with field, value and remedy."""
        model_type = _model_type(raw)
        _refuse(raw, model_type)
        heads = _integer(raw, "num_attention_heads")
        # Configurations older than grouped-query attention lack the key; Mistral's and Qwen2's
        # classes have defaults of their own there, which no published model relies on.
        kv_heads = raw.get("num_key_value_heads")
        if kv_heads is None and model_type != "llama":
            raise _missing("num_key_value_heads")
        rope = raw.get("rope_parameters") or raw.get("rope_scaling")
        theta = (rope or {}).get("rope_theta", raw.get("rope_theta", 10000.0))
        eos = raw.get("eos_token_id")
        return cls(
            vocab_size=_integer(raw, "vocab_size"),
            hidden=_integer(raw, "hidden_size"),
            layers=_integer(raw, "num_hidden_layers"),
            heads=heads,
            kv_heads=heads if kv_heads is None else _integer(raw, "num_key_value_heads"),
            ffn=_integer(raw, "intermediate_size"),
            head_dim=_integer(raw, "head_dim") if raw.get("head_dim") is not None else 0,
            num_tokens=raw.get("vinejax_num_tokens", 0),
            norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(theta),
            rope_scaling=RopeScaling.from_hf(rope),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=model_type == "qwen2",
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            compute_dtype=compute_dtype,
            remat=remat,
            model_type=model_type,
            bos_id=raw.get("bos_token_id"),
            eos_id=tuple(eos) if isinstance(eos, list) else eos,
            pad_id=raw.get("pad_token_id"),
        )

    def to_hf(self) -> dict[str, Any]:
        """The `config.json` of this decoder, in the older keys, which transformers 4 and 5 read.

        Raises UserError where the model type cannot say what this configuration is.
        """
        if self.qkv_bias != (self.model_type == "qwen2"):
            raise UserError(
                f"qkv_bias={self.qkv_bias} cannot be written as model_type={self.model_type!r}: "
                "in Hugging Face's format exactly qwen2 has these biases"
            )
        raw: dict[str, Any] = {
            "architectures": [_ARCHITECTURES[self.model_type]],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.ffn,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": self.rope_scaling.to_hf() if self.rope_scaling else None,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": self.max_positions,
            "bos_token_id": self.bos_id,
            "eos_token_id": list(self.eos_id) if isinstance(self.eos_id, tuple) else self.eos_id,
            "pad_token_id": self.pad_id,
        }
        if self.model_type == "mistral":
            raw["sliding_window"] = None  # the class's default is a window of 4096
        if self.num_tokens != self.vocab_size:
            raw["vinejax_num_tokens"] = self.num_tokens
        return raw


def _model_type(raw: dict[str, Any]) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in _MODEL_TYPES:
        raise _unsupported("architectures", names, ", ".join(_MODEL_TYPES))
    return _MODEL_TYPES[names[0]]


def _refuse(raw: dict[str, Any], model_type: str) -> None:
    """Raise for every setting under which transformers would compute something else than we do."""
    if raw.get("quantization_config") is not None:
        kind = dict(raw["quantization_config"]).get("quant_method", "unnamed")
        raise _unsupported("quantization_config", kind, "unquantized weights")
    if raw.get("hidden_act", "silu") != "silu":
        raise _unsupported("hidden_act", raw["hidden_act"], "silu")
    for name in ("attention_bias", "mlp_bias"):
        if raw.get(name):
            raise _unsupported(name, raw[name], "false (Qwen2's q/k/v biases come with its class)")
    if model_type == "mistral":
        window = raw.get("sliding_window", 4096)
        if window is not None:
            raise _unsupported("sliding_window", window, "null")
    if raw.get("use_sliding_window"):
        raise _unsupported("use_sliding_window", raw["use_sliding_window"], "false")
    for kind in raw.get("layer_types") or ():
        if kind != "full_attention":
            raise _unsupported("layer_types", kind, "full_attention")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        raise _unsupported("partial_rotary_factor", raw["partial_rotary_factor"], "1.0")


def _integer(raw: dict[str, Any], name: str, prefix: str = "") -> int:
    value = raw.get(name)
    if value is None:
        raise _missing(prefix + name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"config.json: {prefix}{name}={value!r} is not a positive integer")
    return value


def _number(raw: dict[str, Any], name: str, prefix: str = "") -> float:
    value = raw.get(name)
    if value is None:
        raise _missing(prefix + name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise UserError(f"config.json: {prefix}{name}={value!r} is not a positive number")
    return float(value)


def _missing(name: str) -> UserError:
    return UserError(f"config.json: {name} is missing; add it, or take a model whose folder has it")


def _unsupported(field: str, value: object, supported: str) -> UserError:
    return UserError(
        f"config.json: {field}={value!r} is not supported (supported: {supported}); "
        "use another model, or one exported in a supported form"
    )
