"""Parity with transformers itself (torch, fp32, CPU): logits, files in both directions."""

import filecmp
import os
from pathlib import Path

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity with transformers needs torch")

from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from tests.parity import kinds  # noqa: E402
from tests.parity.make_golden import reference_logits  # noqa: E402
from vinejax import policy  # noqa: E402
from vinejax.tokenizer import load_tokenizer  # noqa: E402

TOLERANCE = 1e-4  # of the logits' scale
_forward = jax.jit(policy.forward, static_argnums=1)


def error(folder: Path, tokens: np.ndarray, reference: np.ndarray) -> float:
    config, params = policy.load_hf(folder, compute_dtype="float32")
    ours = np.asarray(_forward(params, config, tokens))
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


@pytest.fixture(params=kinds.KINDS)
def folder(request, tmp_path) -> Path:
    return kinds.write(tmp_path / "model", kinds.KINDS[request.param])


def test_logits_of_a_tiny_model_equal_transformers(folder):
    tokens = kinds.tokens()
    assert error(folder, tokens, reference_logits(folder, tokens)) < TOLERANCE


def test_an_export_loads_in_transformers_with_the_same_logits(folder, tmp_path):
    tokens = kinds.tokens()
    policy.save_hf(tmp_path / "export", *policy.load_hf(folder))
    again = reference_logits(tmp_path / "export", tokens)
    np.testing.assert_array_equal(again, reference_logits(folder, tokens))


def test_a_folder_that_transformers_writes_is_read_the_same(folder, tmp_path):
    """transformers 5 writes the rotary settings under other keys than 4 did."""
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    config, params = policy.load_hf(folder)
    their_config, their_params = policy.load_hf(tmp_path / "theirs")
    assert their_config == config
    jax.tree.map(np.testing.assert_array_equal, their_params, params)


def test_transformers_reads_our_config_as_it_reads_the_original(folder, tmp_path):
    policy.save_hf(tmp_path / "export", *policy.load_hf(folder))
    ours, theirs = (AutoConfig.from_pretrained(f) for f in (tmp_path / "export", folder))
    theirs.rope_parameters.pop("type", None)  # the key's name before rope_type, kept beside it
    for name in ("rope_parameters", "rms_norm_eps", "tie_word_embeddings", "num_key_value_heads"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_bf16_is_as_close_to_fp32_as_transformers_is(folder):
    tokens = kinds.tokens()
    exact = reference_logits(folder, tokens)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.no_grad():
        theirs = model(torch.tensor(tokens, dtype=torch.long)).logits.float().numpy()
    config, params = policy.load_hf(folder, compute_dtype="bfloat16")
    ours = np.asarray(_forward(params, config, tokens))
    assert np.abs(ours - exact).mean() < 1.5 * np.abs(theirs - exact).mean()


@pytest.fixture
def smollm2() -> Path:
    path = os.environ.get("VINEJAX_SMOLLM2")
    if not path:
        pytest.skip("VINEJAX_SMOLLM2 names no folder of SmolLM2-135M")
    return Path(path)


def test_smollm2_logits_equal_transformers(smollm2):
    tokens = np.random.default_rng(0).integers(0, 49152, (2, 48)).astype(np.int32)
    assert error(smollm2, tokens, reference_logits(smollm2, tokens)) < TOLERANCE


def test_smollm2_export_is_bit_identical_and_loads_in_transformers(smollm2, tmp_path):
    config, params = policy.load_hf(smollm2)
    tokenizer = load_tokenizer(smollm2)
    policy.save_hf(tmp_path / "a", config, params, tokenizer)
    again = policy.load_hf(tmp_path / "a")
    assert again[0] == config
    jax.tree.map(np.testing.assert_array_equal, again[1], params)
    policy.save_hf(tmp_path / "b", *again, load_tokenizer(tmp_path / "a"))
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert filecmp.cmpfiles(tmp_path / "a", tmp_path / "b", names, shallow=False)[0] == names
    tokens = np.arange(32, dtype=np.int32)[None] * 7
    ours = reference_logits(tmp_path / "a", tokens)
    np.testing.assert_array_equal(ours, reference_logits(smollm2, tokens))
