"""Whatever this decoder would get wrong is refused by name, before weights are read."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.parity import kinds
from tests.small_tokenizers import byte_level
from vinejax import policy
from vinejax.config import UserError

LLAMA = kinds.KINDS["two_kv_heads"]
QWEN2 = kinds.KINDS["qwen2"]
MISTRAL = kinds.KINDS["mistral"]


def without(raw: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != name}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (LLAMA | {"architectures": ["GemmaForCausalLM"]}, r"architectures=\['GemmaForCausalLM'\]"),
        (without(LLAMA, "architectures"), "architectures=None"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        (LLAMA | {"attention_bias": True}, "attention_bias=True"),
        (LLAMA | {"mlp_bias": True}, "mlp_bias=True"),
        (LLAMA | {"quantization_config": {"quant_method": "gptq"}}, "quantization_config='gptq'"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling='dynamic'"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "rope_scaling='yarn'"),
        (LLAMA | {"rope_parameters": {"rope_type": "longrope"}}, "rope_scaling='longrope'"),
        (LLAMA | {"rope_scaling": {"factor": 2.0}}, "rope_scaling=None"),
        (LLAMA | {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor=-1"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (MISTRAL | {"sliding_window": 4096}, "sliding_window=4096"),
        (without(MISTRAL, "sliding_window"), "sliding_window=4096"),
        (QWEN2 | {"use_sliding_window": True}, "use_sliding_window=True"),
        (QWEN2 | {"layer_types": ["sliding_attention"]}, "layer_types='sliding_attention'"),
        (without(QWEN2, "num_key_value_heads"), "num_key_value_heads is missing"),
        (without(LLAMA, "hidden_size"), "hidden_size is missing"),
        (LLAMA | {"hidden_size": "32"}, "hidden_size='32'"),
        (LLAMA | {"num_key_value_heads": 3}, "heads=4 is not a multiple of kv_heads=3"),
        (LLAMA | {"hidden_size": 30}, "hidden=30 is not a multiple of heads=4"),
        (LLAMA | {"head_dim": 7}, "head_dim=7 is odd"),
    ],
)
def test_an_unsupported_configuration_is_refused_before_weights_are_read(raw, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw))  # there are no weights to read
    with pytest.raises(UserError, match=message):
        policy.load_hf(tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        LLAMA | {"pretraining_tp": 2, "rope_scaling": None, "attention_bias": False},
        without(LLAMA, "num_key_value_heads"),
        LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        LLAMA | {"head_dim": None, "quantization_config": None},
        QWEN2 | {"layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_settings_without_effect_and_older_files_are_accepted(raw):
    assert policy.LlamaConfig.from_hf(raw).head_dim == 8


def test_both_spellings_of_the_rotary_settings_mean_the_same():
    scaling = {"factor": 4.0}
    old = LLAMA | {"rope_theta": 500.0, "rope_scaling": scaling | {"type": "linear"}}
    new = LLAMA | {"rope_theta": 500.0, "rope_scaling": scaling | {"rope_type": "linear"}}
    five = LLAMA | {"rope_parameters": scaling | {"rope_type": "linear", "rope_theta": 500.0}}
    read = [policy.LlamaConfig.from_hf(raw) for raw in (old, new, five)]
    assert read[0] == read[1] == read[2]
    assert read[0].rope_theta == 500.0


def test_a_missing_folder_is_named():
    with pytest.raises(UserError, match=r"policy\.path='/no/such/model'.*no such folder"):
        policy.load_hf("/no/such/model")
    with pytest.raises(UserError, match=r"policy\.path='nosuchmodel'.*no such folder"):
        policy.load_hf("nosuchmodel")


def test_a_folder_without_or_with_a_broken_config_is_named(tmp_path):
    with pytest.raises(UserError, match=r"config\.json is missing"):
        policy.load_hf(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": [')
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        policy.load_hf(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_pickled_weights_are_refused_with_the_command_that_converts_them(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / name).write_text("{}")
    command = rf"python -m experiments\.convert --model={tmp_path} --to=PATH"
    with pytest.raises(UserError, match=command):
        policy.load_hf(tmp_path)


@pytest.mark.parametrize("kept", [4, 100, -1])
def test_a_truncated_file_is_named(kept, tmp_path):
    kinds.write(tmp_path, LLAMA)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"model\.safetensors is truncated or damaged.*fetch"):
        policy.load_hf(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    table = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match=r"model-00001-of-00002\.safetensors is missing"):
        policy.load_hf(tmp_path)


def test_missing_surplus_and_misshapen_tensors_are_named_together(tmp_path):
    kinds.write(tmp_path, LLAMA)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.ones(3, np.float32)
    tensors["model.norm.weight"] = np.ones(31, np.float32)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.ones((48, 32), np.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError) as error:
        policy.load_hf(tmp_path)
    for part in (
        "missing lm_head.weight",
        "unexpected model.layers.2.mlp.up_proj.weight",
        "model.norm.weight has shape (31,), config.json says (32,)",
        "model.layers.0.mlp.up_proj.weight has type I8",
    ):
        assert part in str(error.value)


def test_tokenizer_ids_beyond_the_embedding_are_refused(tmp_path):
    kinds.write(tmp_path, LLAMA)
    tokenizer = byte_level()
    tokenizer.save(tmp_path)
    assert tokenizer.vocab_size > 67
    with pytest.raises(UserError, match=r"tokenizer has ids up to .* only 67 rows"):
        policy.load_hf(tmp_path)


def test_what_hugging_faces_format_cannot_say_is_not_exported():
    config = policy.LlamaConfig(
        vocab_size=8, hidden=8, layers=1, heads=1, kv_heads=1, ffn=8, qkv_bias=True
    )
    with pytest.raises(UserError, match="qkv_bias=True"):
        config.to_hf()


@pytest.mark.parametrize(
    ("field", "value"), [("num_tokens", 9), ("compute_dtype", "float16"), ("model_type", "gpt2")]
)
def test_a_wrong_field_of_the_configuration_is_named(field, value):
    fields = {"vocab_size": 8, "hidden": 8, "layers": 1, "heads": 1, "kv_heads": 1, "ffn": 8}
    with pytest.raises(UserError, match=f"{field}={value!r}"):
        policy.LlamaConfig(**fields | {field: value})
