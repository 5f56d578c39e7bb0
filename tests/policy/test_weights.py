"""Hugging Face folders: import and export are inverse, bit by bit."""

import filecmp
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.parity import kinds
from tests.small_tokenizers import byte_level
from vinejax import policy
from vinejax.config import UserError
from vinejax.policy import weights
from vinejax.tokenizer import load_tokenizer

init = jax.jit(policy.init, static_argnums=0)
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert jax.tree.map(lambda x: x.dtype, a) == jax.tree.map(lambda x: x.dtype, b)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_export_of_an_import_has_the_same_tensors_bit_by_bit(kind, tmp_path):
    source = kinds.write(tmp_path / "in", kinds.KINDS[kind], ml_dtypes.bfloat16)
    policy.save_hf(tmp_path / "out", *policy.load_hf(source))
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, x in before.items():
        assert after[name].dtype == x.dtype
        assert after[name].tobytes() == x.tobytes(), name


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_configuration_survives_its_translation(kind, tmp_path):
    config = policy.LlamaConfig.from_hf(kinds.KINDS[kind])
    assert policy.LlamaConfig.from_hf(config.to_hf()) == config
    assert policy.LlamaConfig.from_hf(json.loads(json.dumps(config.to_hf()))) == config


@pytest.mark.parametrize("dtype", DTYPES)
def test_import_of_an_export_is_the_same_tree_in_the_same_type(dtype, tmp_path):
    config = policy.LlamaConfig.from_hf(kinds.KINDS["qwen2"])
    params = jax.tree.map(lambda x: x.astype(dtype), init(config, jax.random.key(0)))
    policy.save_hf(tmp_path / "out", config, params)
    again_config, again = policy.load_hf(tmp_path / "out")
    assert again_config == config
    assert_same(again, params)


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
def test_a_second_export_is_the_first_byte_for_byte(shard_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SHARD_BYTES", shard_bytes)
    source = kinds.write(tmp_path / "in", kinds.KINDS["llama3_rope"] | {"vocab_size": 800})
    byte_level().save(source)
    config, params = policy.load_hf(source)
    policy.save_hf(tmp_path / "a", config, params, load_tokenizer(source))
    again = policy.load_hf(tmp_path / "a")
    assert again[0] == config
    assert_same(again[1], params)
    policy.save_hf(tmp_path / "b", *again, load_tokenizer(tmp_path / "a"))
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "b").iterdir())
    assert filecmp.cmpfiles(tmp_path / "a", tmp_path / "b", names, shallow=False)[0] == names
    assert ("model.safetensors.index.json" in names) == (shard_bytes < 10**9)
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= set(names)


def test_shards_stay_below_their_limit_and_are_all_indexed(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SHARD_BYTES", 20_000)
    config, params = policy.load_hf(kinds.write(tmp_path / "in", kinds.KINDS["two_kv_heads"]))
    policy.save_hf(tmp_path / "out", config, params)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    shards = {name: load_file(tmp_path / "out" / name) for name in index["weight_map"].values()}
    assert len(shards) > 2
    assert (
        sum(x.nbytes for s in shards.values() for x in s.values())
        == (index["metadata"]["total_size"])
    )
    for name, shard in shards.items():
        assert sum(x.nbytes for x in shard.values()) <= 20_000
        assert all(index["weight_map"][key] == name for key in shard)


def test_layers_of_different_types_are_held_exactly(tmp_path):
    folder = kinds.write(tmp_path / "in", kinds.KINDS["two_kv_heads"], ml_dtypes.bfloat16)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = kinds.uniform(name, tensors[name].shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _, params = policy.load_hf(folder)
    assert params["layers"]["w_up"].dtype == jnp.float32
    assert params["layers"]["w_down"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(params["layers"]["w_up"][1], tensors[name].T)


def test_a_type_and_shardings_can_be_asked_for(tmp_path):
    folder = kinds.write(tmp_path / "in", kinds.KINDS["two_kv_heads"], ml_dtypes.bfloat16)
    config, as_stored = policy.load_hf(folder)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = jax.tree.map(lambda x: one, as_stored)
    _, wide = policy.load_hf(folder, dtype="float32", shardings=placed)
    assert_same(wide, jax.tree.map(lambda x: x.astype(jnp.float32), as_stored))
    assert config.compute_dtype == ("float32" if jax.default_backend() == "cpu" else "bfloat16")


def test_number_of_tokens_is_the_tokenizers_not_the_embeddings(tmp_path):
    folder = kinds.write(tmp_path / "in", kinds.KINDS["two_kv_heads"] | {"vocab_size": 800})
    tokenizer = byte_level()
    tokenizer.save(folder)
    config, params = policy.load_hf(folder)
    assert config.num_tokens == tokenizer.vocab_size < config.vocab_size == 800
    policy.save_hf(tmp_path / "out", config, params)  # no tokenizer beside it
    assert policy.load_hf(tmp_path / "out")[0] == config


def test_rotary_buffers_and_an_equal_second_head_are_not_missed(tmp_path):
    raw = kinds.KINDS["tied"]
    head = kinds.tensors(raw)["model.embed_tokens.weight"]
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
        "lm_head.weight": head,
    }
    _, params = policy.load_hf(kinds.write(tmp_path / "in", raw, **extra))
    assert "head" not in params
    with pytest.raises(UserError, match=r"unexpected lm_head\.weight"):
        policy.load_hf(kinds.write(tmp_path / "no", raw, **extra | {"lm_head.weight": head + 1}))


def test_an_earlier_export_is_replaced_and_anything_else_refused(tmp_path):
    config = policy.LlamaConfig.from_hf(kinds.KINDS["tied"])
    params = init(config, jax.random.key(0))
    (tmp_path / "out").mkdir()  # an empty folder will do
    policy.save_hf(tmp_path / "out", config, params)
    other = init(config, jax.random.key(1))
    policy.save_hf(tmp_path / "out", config, other)
    assert_same(policy.load_hf(tmp_path / "out")[1], other)
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.txt.*choose another path"):
        policy.save_hf(tmp_path / "out", config, params)
    assert (tmp_path / "out" / "thesis.txt").exists()


def test_an_export_that_fails_leaves_what_was_there(tmp_path):
    config = policy.LlamaConfig.from_hf(kinds.KINDS["tied"])
    params = init(config, jax.random.key(0))
    policy.save_hf(tmp_path / "out", config, params)
    broken = params | {"final_norm": jnp.ones(3)}
    with pytest.raises(ValueError, match=r"model\.norm\.weight has shape \(3,\)"):
        policy.save_hf(tmp_path / "out", config, broken)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert_same(policy.load_hf(tmp_path / "out")[1], params)
