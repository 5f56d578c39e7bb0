"""From a model folder and GSM8K files to an exported folder, with a model that knows nothing."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from huggingface_hub import ModelCard
from safetensors.numpy import load_file, save_file
from transformers import GenerationConfig

from experiments import export
from tests.e2e import folders, runs
from vinejax import policy, tasks
from vinejax.checkpoint import Checkpoints
from vinejax.config import EvaluationConfig
from vinejax.report import read_rollouts
from vinejax.tokenizer import load_tokenizer

# The invented data is smaller than the published one, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* problems, the published")

SMALL = {
    "iterations": 2,
    "prompts": 2,
    "samples": 2,
    "task.max_prompt_tokens": 96,
    "sampling.max_new_tokens": 24,
    "sampling.context": 128,
    "sampling.top_p": 1.0,
    "values.k": 2,
    "values.context": 128,
    "values.states": "every:8",  # noise has no steps
    "update.minibatch": 2,
    "update.microbatch": 2,
    "update.weight_decay": 0.1,  # noise is never rewarded, and something should change the weights
    "update.learning_rate": 1e-3,
    "update.max_sequence": 128,
    "evaluation.problems": 2,
    "evaluation.samples": 1,
    "evaluation.max_new_tokens": 24,
    "evaluation.context": 128,
    "grading.workers": 1,
}


def flags(out: Path, model: Path, data: Path) -> list[str]:
    return [
        "--config=gsm8k_smollm2",
        f"--out={out}",
        f"--config.policy.path={model}",
        f"--config.task.path={data}",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, data, a run of two iterations, and its export."""
    base = tmp_path_factory.mktemp("gsm8k")
    folders.make_model(base / "model")
    folders.make_data(base / "data")
    runs.train(*flags(base / "run", base / "model", base / "data"))
    assert export.main([f"--run={base / 'run'}", f"--to={base / 'exported'}"]) == 0
    return base


def test_two_iterations_from_a_model_on_disk(trained: Path):
    lines = runs.metrics(trained / "run")
    assert [line["iteration"] for line in lines] == [1, 2]
    for line in lines:
        assert all(np.isfinite(v) for v in line.values() if isinstance(v, float)), line
        assert line["sampler_scorer_gap_max"] < 1e-3
        assert line["tokens_prefilled_values"] == 0
        assert line["states"] > 4
    summary = runs.summary(trained / "run")
    assert summary["iterations"] == 2
    assert summary["problems"] == 2
    assert not (trained / "run" / "checkpoints" / "sft").exists()  # the model is taken as it is


def test_prompts_are_the_authors_template_and_ids_are_the_tokenizers(trained: Path):
    tokenizer = load_tokenizer(trained / "model")
    for record in read_rollouts(trained / "run", 1):
        prompt = tokenizer.decode(record["tokens"][: record["prompt_length"]])
        assert prompt.startswith("[MATH_TASK] Problem:\n")
        assert prompt.endswith("\n\nSolution:")
        assert record["problem_text"] in prompt
        assert record["tokens"][0] == tokenizer.bos_id
        assert max(record["tokens"]) < tokenizer.vocab_size  # not the rows beyond the tokenizer
        assert record["reward"] == 0


def test_the_export_is_the_newest_checkpoint_bit_for_bit(trained: Path):
    config, params = policy.load_hf(trained / "exported")
    assert config.num_tokens == load_tokenizer(trained / "model").vocab_size
    target = {"params": jax.tree.map(lambda x: np.empty(x.shape, np.float32), params)}
    with Checkpoints(trained / "run" / "checkpoints" / "policy", read_only=True) as checkpoints:
        assert checkpoints.latest() == 2
        saved, _ = checkpoints.restore(2, target, partial=True)
    before = policy.load_hf(trained / "model")[1]
    for name, leaf in saved["params"]["layers"].items():
        np.testing.assert_array_equal(params["layers"][name], leaf)
    np.testing.assert_array_equal(params["embed"], saved["params"]["embed"])
    assert jax.tree.structure(params) == jax.tree.structure(saved["params"])
    assert not np.array_equal(params["embed"], before["embed"])


def test_the_export_has_the_models_shape_and_tokenizer(trained: Path):
    read = {
        name: json.loads((trained / name / "config.json").read_text())
        for name in ("model", "exported")
    }
    changed = {key for key in read["model"] if read["model"][key] != read["exported"].get(key)}
    assert changed <= {"torch_dtype"}
    text = "Ada has 3 red pens.\n#### 3"
    tokenizers = [load_tokenizer(trained / name) for name in ("model", "exported")]
    assert tokenizers[0].encode(text, bos=True) == tokenizers[1].encode(text, bos=True)


def test_transformers_loads_the_export_with_the_same_logits(trained: Path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers")
    config, params = policy.load_hf(trained / "exported")
    ids = np.arange(3, 3 + 24).reshape(2, 12)
    ours = np.asarray(policy.forward(params, config, ids))
    model = transformers.AutoModelForCausalLM.from_pretrained(trained / "exported").float()
    with torch.no_grad():
        theirs = model(torch.tensor(ids)).logits.numpy()
    known = slice(0, config.num_tokens)
    scale = np.abs(theirs[..., known]).max()
    assert np.abs(ours[..., known] - theirs[..., known]).max() < 1e-4 * scale
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained / "exported")
    text = "Ada has 3 red pens.\n#### 3"
    assert tokenizer.encode(text, add_special_tokens=False) == load_tokenizer(
        trained / "model"
    ).encode(text)


def test_the_export_brings_a_card_and_the_settings_of_the_evaluation(trained: Path):
    folder = trained / "exported"
    card = ModelCard((folder / "README.md").read_text())
    assert card.data.to_dict() == {
        "language": "en",
        "library_name": "transformers",
        "tags": ["vinejax", "vineppo", "math"],
        "pipeline_tag": "text-generation",
    }
    assert "The licence of the base model model is not stated by its folder" in card.text
    assert "after iteration 2 of 2" in card.text
    config = json.loads((folder / "vinejax_config.json").read_text())
    assert config["policy"]["path"] == "model"
    written = "".join(
        path.read_text() for path in folder.iterdir() if path.suffix != ".safetensors"
    )
    assert str(trained) not in written
    tokenizer = load_tokenizer(folder)
    found = GenerationConfig.from_pretrained(folder)
    assert (found.do_sample, found.temperature, found.top_p, found.top_k) == (True, 0.35, 0.9, 0)
    assert found.max_new_tokens == 24
    assert (found.bos_token_id, found.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert found.pad_token_id is None  # none is declared


def test_a_second_export_is_the_first_byte_for_byte(trained: Path):
    before = runs.contents(trained / "exported")
    assert export.main([f"--run={trained / 'run'}", f"--to={trained / 'exported'}"]) == 0
    assert runs.contents(trained / "exported") == before


def test_the_code_of_the_card_runs(trained: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("torch", reason="torch is not installed")
    text = (trained / "exported" / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    namespace: dict[str, Any] = {}
    exec(code.replace('"PATH"', repr(str(trained / "exported"))), namespace)
    ids, tokenizer = namespace["ids"], load_tokenizer(trained / "exported")
    assert ids == tokenizer.encode(namespace["prompt"], bos=True)
    assert namespace["found"][0, : len(ids)].tolist() == ids
    assert len(ids) < namespace["found"].shape[1] <= len(ids) + 24
    assert capsys.readouterr().out


def test_greedy_evaluation_is_greedy():
    evaluation = EvaluationConfig(temperature=0.0, max_new_tokens=7)
    tokenizer = tasks.get("ledger").tokenizer()
    assert tokenizer is not None
    assert export.generation(evaluation, tokenizer) == {
        "max_new_tokens": 7,
        "do_sample": False,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
    }


def test_a_model_that_computes_nonsense_is_noticed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Not a hang, and not silence: a weight that is no number spoils every response."""
    folders.make_model(tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], np.nan)
    save_file(tensors, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    runs.train(*flags(tmp_path / "run", tmp_path / "model", trained / "data"))
    assert {line["error_share"] for line in runs.metrics(tmp_path / "run")} == {1.0}
    assert "iteration 1: 100% of the responses ended in an error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "iterations"),
    [
        (["--config.sft.path={}"], 1),
        (["--config.algorithm=sft", "--config.sft.epochs=0.5", "--config.sft.batch=4"], 0),
    ],
    ids=["reinforced", "fine-tuned"],
)
def test_an_export_can_be_trained_on(
    changes: list[str], iterations: int, trained: Path, tmp_path: Path
):
    model, out = trained / "exported", tmp_path / "run"
    more = ["--config.iterations=1", *(change.format(model) for change in changes)]
    runs.train(*flags(out, model, trained / "data"), *more)
    assert runs.summary(out)["iterations"] == iterations
    assert export.main([f"--run={out}", f"--to={tmp_path / 'exported'}"]) == 0
    before, after = (policy.load_hf(path)[1] for path in (model, tmp_path / "exported"))
    assert not np.array_equal(before["embed"], after["embed"])
