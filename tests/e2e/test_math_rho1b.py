"""The paper's run starts: its configuration, RhoMath's shape in two layers, real data, one CPU."""

from pathlib import Path

import jax
import pytest

from tests.e2e import runs
from tests.shared_data import REASON, shared_data
from vinejax import policy
from vinejax.report import read_rollouts
from vinejax.tokenizer import load_tokenizer

DATA = shared_data()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(DATA is None, reason=REASON)]

# A few tokens of a few problems; all else is the configuration's.
SMALL = {
    "iterations": 1,
    "prompts": 2,
    "samples": 2,
    "sampling.max_new_tokens": 16,
    "values.k": 2,
    "update.minibatch": 4,
    "sft.epochs": 0,
    "evaluation.problems": 2,
    "evaluation.test_problems": 2,
    "evaluation.samples": 1,
    "evaluation.max_new_tokens": 8,
    "grading.workers": 1,
}


def make_model(folder: Path) -> int:
    """Two layers of RhoMath 1.1B with random weights and Llama 2's tokenizer; its parameters."""
    assert DATA is not None
    tokenizer = load_tokenizer(str(DATA / "tokenizers" / "llama2"))
    config = policy.LlamaConfig(
        vocab_size=32000,
        hidden=2048,
        layers=2,
        heads=32,
        kv_heads=4,
        head_dim=64,
        ffn=5632,
        max_positions=2048,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    params = policy.init(config, jax.random.key(0))
    policy.save_hf(folder, config, params, tokenizer)
    return sum(x.size for x in jax.tree.leaves(params))


def test_math_rho1b_starts(tmp_path: Path):
    assert make_model(tmp_path / "model") == 219_162_624
    out = tmp_path / "run"
    runs.finish(
        "--config=math_rho1b",
        f"--out={out}",
        f"--config.policy.path={tmp_path / 'model'}",
        f"--config.task.path={DATA}",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
        timeout=1800,
    )
    (line,) = runs.metrics(out)
    assert line["tokens_sampled"] > 0
    assert line["tokens_trained"] > 0
    assert line["sampler_scorer_gap_max"] < 1e-3
    assert line["rollouts"] == 2 * line["states"] > 0
    records = read_rollouts(out, 1)
    assert len(records) == 4
    assert all(record["tokens"][0] == 1 for record in records)  # Llama's beginning of a sequence
    assert runs.summary(out)["iterations"] == 1
    assert (out / "checkpoints" / "policy").is_dir()
