"""The model, tokenizer and parameters that a run starts from: a folder, a hub id, or random."""

from dataclasses import replace
from pathlib import Path

from jax.sharding import Mesh

from vinejax import policy, rng, sampler, sharding
from vinejax.config import Config, UserError
from vinejax.tasks import Task
from vinejax.tokenizer import Tokenizer, load_tokenizer


def start_policy(config: Config, tokenizer: Tokenizer) -> tuple[policy.LlamaConfig, policy.Params]:
    """The model and its parameters before any training, on one device."""
    model = start_model(config, tokenizer)
    return model, start_params(config, model)


def start_model(config: Config, tokenizer: Tokenizer) -> policy.LlamaConfig:
    """The model of the folder or hub id to start from, or of `policy.architecture`; no weights."""
    _check_attention(config)
    source, revision = _source(config)
    dtype = compute_dtype(config)
    if source is not None:
        model = policy.load_config(source, dtype, revision)
        if tokenizer.vocab_size > model.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} ids, but the embedding of {source} has "
                f"{model.vocab_size} rows: policy.tokenizer belongs to another model, "
                "give the model's own"
            )
    else:
        model = random_model(config, tokenizer, dtype)
    # In place, XLA:CPU updates a cache in fp32 only; a bfloat16 one is converted at every step.
    model = replace(
        model,
        num_tokens=tokenizer.vocab_size,
        remat="block" if config.policy.remat == "auto" else config.policy.remat,
        kv_dtype="float32" if policy.platform() == "cpu" else None,
    )
    return with_attention(config, model)


def start_params(
    config: Config, model: policy.LlamaConfig, mesh: Mesh | None = None
) -> policy.Params:
    """The parameters before any training: random, or read from disk.

    Each leaf that is read goes to the devices of `mesh` at once, as the update will have it: a
    model may not fit on one of them. Random ones, and without a mesh all, are on one device.
    """
    source, revision = _source(config)
    if source is None:
        return policy.init(model, rng.fold_name(rng.key(config.seed), "initialisation"))
    placed = None
    if mesh is not None and mesh.size > 1:
        placed = sharding.shardings(mesh, policy.logical_axes(model))
    return policy.load_hf(source, revision=revision, shardings=placed)[1]


def find_tokenizer(config: Config, task: Task) -> Tokenizer:
    """That of `policy.tokenizer`, else of the model on disk, else the task's own."""
    if config.policy.tokenizer is not None:
        _check_folder("policy.tokenizer", config.policy.tokenizer)
        return load_tokenizer(config.policy.tokenizer)
    source, revision = _source(config)
    if source is not None:
        return load_tokenizer(source, revision)
    own = task.tokenizer()
    if own is None:
        raise UserError(
            f"task {task.name} brings no tokenizer: set policy.tokenizer or policy.path"
        )
    return own


def random_model(config: Config, tokenizer: Tokenizer, dtype: str) -> policy.LlamaConfig:
    """The model of `policy.architecture`."""
    shape = config.policy.architecture
    assert shape is not None, "validate() sees to it"
    return policy.LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        tied=shape.tied,
        rope_theta=shape.rope_theta,
        norm_eps=shape.norm_eps,
        max_positions=config.update.max_sequence,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        compute_dtype=dtype,
    )


def with_attention(config: Config, model: policy.LlamaConfig) -> policy.LlamaConfig:
    """The model with the implementations of attention that are asked for, or the platform's own."""
    backend = config.policy.attention
    if backend == "auto":
        backend = policy.default_backend(policy.platform(), model.compute_dtype)
    model = replace(model, attention=backend)
    decoding = config.engine.attention
    if decoding == "auto":
        decoding = sampler.decode_attention(model)
    return replace(model, decode_attention=decoding)


def compute_dtype(config: Config) -> str:
    """The type of matrix products: `auto` is bfloat16 on accelerators and float32 on CPU."""
    if config.policy.compute_dtype != "auto":
        return config.policy.compute_dtype
    return "float32" if policy.platform() == "cpu" else "bfloat16"


def _source(config: Config) -> tuple[str | None, str | None]:
    """Path or hub id of the model to start from, and its revision; None = random."""
    if config.sft.path is not None:
        _check_folder("sft.path", config.sft.path)
        return config.sft.path, None
    if config.policy.path is not None:
        _check_folder("policy.path", config.policy.path)
    return config.policy.path, config.policy.revision


def _check_folder(field: str, path: str) -> None:
    if not Path(path).expanduser().exists() and not policy.is_hub_id(path):
        raise UserError(
            f"{field} is {path!r}: there is no such folder; "
            "give a Hugging Face model folder or a hub id like owner/name"
        )


def _check_attention(config: Config) -> None:
    """Raises UserError for an attention that the devices do not have."""
    platform, dtype = policy.platform(), compute_dtype(config)
    asked = {"policy": config.policy.attention, "engine": config.engine.attention}
    for section, backend in asked.items():
        where = {"cudnn": "gpu", "splash": "tpu"}.get(backend, platform)
        if where != platform:
            raise UserError(
                f"{section}.attention is {backend!r}, which runs on a {where}, but the devices are "
                f"{platform}: leave it as it is by default"
            )
        if backend == "cudnn" and dtype != "bfloat16":
            raise UserError(
                f"{section}.attention is 'cudnn', which computes in half precision, but "
                f"policy.compute_dtype is {dtype}: set it to bfloat16"
            )
