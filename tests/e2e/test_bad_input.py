"""Bad input is refused before any work: exit code 2, nothing written, a message with a remedy."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.e2e import folders, runs
from vinejax.report import write_json

# The invented data is smaller than the published one, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:.* holds .* problems, the published")

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good model and good data."""
    base = tmp_path_factory.mktemp("inputs")
    folders.make_model(base / "model")
    folders.make_data(base / "data")
    return base


@pytest.fixture
def model(inputs: Path, tmp_path: Path) -> Path:
    """A copy of the model to be damaged."""
    return _copy(inputs / "model", tmp_path / "model")


@pytest.fixture
def data(inputs: Path, tmp_path: Path) -> Path:
    """A copy of the data to be damaged."""
    return _copy(inputs / "data", tmp_path / "data")


def _copy(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def gsm8k(out: Path, model: Path, data: Path) -> list[str]:
    return [
        "--config=gsm8k_smollm2",
        f"--out={out}",
        f"--config.policy.path={model}",
        f"--config.task.path={data}",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config=tinny"], ["tinny", "did you mean tiny"]),
        ([], ["--config=NAME is missing", "tiny"]),
        (
            ["--config=tiny", "--config.update.learning_rat=1"],
            ["--config.update.learning_rat", "did you mean --config.update.learning_rate"],
        ),
        (["--config=tiny", "--config.prompts=many"], ["--config.prompts", "many", "int"]),
        (["--config=tiny", "--config.policy.remat=perhaps"], ["remat", "perhaps", "auto"]),
        (["--config=tiny", "--config.update.decay=square"], ["decay", "square", "linear"]),
        (
            ["--config=tiny", "--config.prompts=6", "--config.update.minibatch=16"],
            ["update.minibatch is 16", "prompts * samples = 24", "use one of", "12"],
        ),
        (
            ["--config=tiny", "--config.update.microbatch=12"],
            ["update.microbatch is 12", "does not divide update.minibatch", "use one of", "16"],
        ),
        (
            ["--config=tiny", "--config.sft.batch=48", "--config.sft.microbatch=32"],
            ["sft.microbatch is 32", "sft.batch = 48", "use one of", "24"],
        ),
        (
            ["--config=tiny", "--config.values.states=words"],
            ["values.states is 'words'", "step, token or every:N"],
        ),
        (["--config=tiny", "--config.sampling.top_p=0"], ["sampling.top_p is 0", "more than 0"]),
        (["--config=tiny", "--config.seed=-1"], ["seed is -1", "0 to 4294967295"]),
        (["--config=tiny", "--config.seed=4294967296"], ["seed is 4294967296", "4294967295"]),
        (["--config=tiny", "--config.engine.ring=1"], ["engine.ring is 1", "2 or more"]),
        (["--config=tiny", "--config.task.name=legder"], ["task.name", "legder", "ledger"]),
        (["--config=tiny", "--config.task.options.operators=+/"], ["operators='+/'", "'+-*'"]),
        (
            ["--config=tiny", "--config.task.max_prompt_tokens=10"],
            ["prompts is ", "only 0 of ", "task.max_prompt_tokens = 10", "raise"],
        ),
        (
            ["--config=tiny", "--config.sft.max_length=20"],
            ["sft.batch is ", "only 0 of ", "sft.max_length = 20", "raise"],
        ),
        (
            ["--config=tiny", "--config.prompts=64", "--config.task.options.train_size=50"],
            ["prompts is 64", "only 50 of 50", "lower the first"],
        ),
        (
            ["--config=tiny", "--config.task.options.validation_size=0"],
            ["no validation problem", "validation_size"],
        ),
        (["--config=tiny", "--config.task.options.test_size=0"], ["no test problem"]),
        (
            ["--config=tiny", "--config.mesh.data=3"],
            ["mesh.data x mesh.fsdp x mesh.tensor = 3 x 1 x 1", "there are 8", "choose"],
        ),
        (
            ["--config=tiny", "--config.update.microbatch=4"],
            ["update.microbatch is 4", "mesh.data x mesh.fsdp = 8", "multiple of 8"],
        ),
        (
            ["--config=tiny", "--config.sft.microbatch=4"],
            ["sft.microbatch is 4", "mesh.data x mesh.fsdp = 8", "multiple of 8"],
        ),
        (
            ["--config=tiny", "--config.mesh.fsdp=8", "--config.policy.architecture.hidden=36"],
            ["size 36", "8 devices of mesh.fsdp", "divides 36"],
        ),
    ],
    ids=lambda value: " ".join(value[-1:]) if value and value[0].startswith("--") else "",
)
def test_wrong_flags(arguments: list[str], words: list[str], refused: Refused, out: Path):
    message = refused(*arguments, f"--out={out}")
    for word in words:
        assert word in message


@pytest.mark.parametrize("field", ["policy.path", "sft.path"])
def test_a_missing_model_folder(field: str, refused: Refused, out: Path, data: Path):
    arguments = gsm8k(out, data.parent / "model", data)
    arguments.append(f"--config.{field}=/no/such/model")
    message = refused(*arguments)
    assert "/no/such/model" in message
    assert field in message


def test_truncated_weights(refused: Refused, out: Path, model: Path, data: Path):
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with runs.one_device():
        message = refused(*gsm8k(out, model, data))
    assert f"{file} is truncated or damaged" in message
    assert "fetch it again" in message


def test_an_unsupported_architecture(refused: Refused, out: Path, model: Path, data: Path):
    config = json.loads((model / "config.json").read_text())
    write_json(model / "config.json", config | {"architectures": ["GemmaForCausalLM"]})
    message = refused(*gsm8k(out, model, data))
    assert str(model) in message
    assert "architectures=['GemmaForCausalLM']" in message
    assert "LlamaForCausalLM" in message  # what it could be


def test_tokenizer_ids_beyond_the_embedding(refused: Refused, out: Path, model: Path, data: Path):
    config = json.loads((model / "config.json").read_text())
    rows = config["vocab_size"] = config["vocab_size"] - 24
    write_json(model / "config.json", config)
    tensors = load_file(model / "model.safetensors")
    name = "model.embed_tokens.weight"
    save_file(tensors | {name: tensors[name][:rows].copy()}, model / "model.safetensors")
    message = refused(*gsm8k(out, model, data))
    assert f"only {rows} rows" in message
    assert "the model's own" in message


def test_a_foreign_tokenizer_with_ids_beyond_the_embedding(
    refused: Refused, out: Path, model: Path, data: Path
):
    small = folders.make_model(model.parent / "small", rows=300)
    message = refused(*gsm8k(out, small, data), f"--config.policy.tokenizer={model}")
    assert "embedding" in message
    assert "has 300 rows" in message
    assert "policy.tokenizer" in message


def test_a_folder_without_a_tokenizer(refused: Refused, out: Path, model: Path, data: Path):
    for file in model.glob("tokenizer*"):
        file.unlink()
    message = refused(*gsm8k(out, model, data))
    assert f"{model} holds neither tokenizer.json nor tokenizer.model" in message


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_broken_data_line(part: str, refused: Refused, out: Path, model: Path, data: Path):
    file = data / f"gsm8k_{part}.jsonl"
    folders.edit_line(file, 3, '{"question": "How many?", "answer": "3')
    message = refused(*gsm8k(out, model, data))
    assert f"{file}:3: broken line, not JSON" in message
    assert "correct or remove the line" in message


def test_a_problem_without_a_gold_answer(refused: Refused, out: Path, model: Path, data: Path):
    file = data / "gsm8k_train.jsonl"
    folders.edit_line(file, 5, json.dumps({"question": "How many?", "answer": "There are 3."}))
    message = refused(*gsm8k(out, model, data))
    assert f"{file}:5: no gold answer can be read" in message
    assert "####" in message


def test_data_too_small_for_a_validation_part(refused: Refused, out: Path, model: Path, tmp_path):
    small = folders.make_data(tmp_path / "small", train=8)
    message = refused(*gsm8k(out, model, small))
    assert "no validation problem" in message


def test_missing_data(refused: Refused, out: Path, model: Path, data: Path):
    assert "no folder '/no/such/data'" in refused(*gsm8k(out, model, Path("/no/such/data")))
    (data / "gsm8k_test.jsonl").unlink()
    message = refused(*gsm8k(out, model, data))
    assert f"{data} holds neither gsm8k_test.jsonl nor gsm8k_test.jsonl.gz" in message
