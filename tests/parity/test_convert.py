"""Pickled .bin checkpoints become safetensors with the same tensors; nothing in them is run."""

import json
import pickle

import jax
import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="conversion of .bin files needs torch")

from experiments import convert  # noqa: E402
from tests.parity import kinds  # noqa: E402
from vinejax import policy  # noqa: E402


def write_bin(folder, kind: str, parts: int):
    """The kind's model with .bin weights in so many files."""
    raw = kinds.KINDS[kind]
    tensors = {k: torch.from_numpy(x).bfloat16() for k, x in kinds.tensors(raw).items()}
    if raw["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]  # shares its memory
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    if parts == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return
    table = {}
    for part in range(parts):
        name = f"pytorch_model-{part + 1:05}-of-{parts:05}.bin"
        own = dict(list(tensors.items())[part::parts])
        torch.save(own, folder / name)
        table |= dict.fromkeys(own, name)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))


@pytest.mark.parametrize(("kind", "parts"), [("two_kv_heads", 1), ("qwen2", 3), ("tied", 1)])
def test_a_bin_checkpoint_is_converted_bit_by_bit(kind, parts, tmp_path, capsys):
    write_bin(tmp_path / "bin", kind, parts)
    (tmp_path / "bin" / "README.md").write_text("---\nlicense: mit\n---\n")
    to = tmp_path / "safe"
    assert convert.main([f"--model={tmp_path / 'bin'}", f"--to={to}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["files"] == parts
    assert (to / "README.md").read_text() == "---\nlicense: mit\n---\n"
    config, params = policy.load_hf(to)
    assert config == policy.LlamaConfig.from_hf(kinds.KINDS[kind])
    kinds.write(tmp_path / "same", kinds.KINDS[kind], ml_dtypes.bfloat16)
    expected = policy.load_hf(tmp_path / "same")[1]
    jax.tree.map(np.testing.assert_array_equal, params, expected)


class Bomb:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_a_pickle_that_holds_more_than_tensors_is_refused_and_not_run(tmp_path, capsys):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(kinds.KINDS["tied"]))
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Bomb()}))
    assert convert.main([f"--model={folder}", f"--to={tmp_path / 'safe'}"]) == 2
    out = capsys.readouterr()
    assert "this must not run" not in out.out
    assert "pytorch_model.bin is damaged or holds more than tensors" in out.err
    assert not (tmp_path / "safe").exists()
