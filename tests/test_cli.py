"""The command line: names, overrides, refusals, exit codes. Nothing trains here."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, configs, run
from tests.shared_data import REASON, shared_data
from vinejax.config import Config, Gsm8kOptions, Preempted, UserError, choices, get


def parse(*argv: str) -> tuple[Config, run.RunFlags]:
    return cli.parse(argv, run.RunFlags(), "run", "Train.")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stand-in for vinejax.train that records its call and does what `trained["then"]` says."""
    seen: dict[str, Any] = {"then": lambda: {"final_pass_at_1": 0.5}}

    def stand_in(
        config: Config, out: Path, *, resume: bool, start: Any = None, profile: int = 0
    ) -> dict[str, Any]:
        seen.update(config=config, out=out, resume=resume, start=start, profile=profile)
        return seen["then"]()

    module = types.ModuleType("vinejax.train")
    module.__dict__["run"] = stand_in
    monkeypatch.setitem(sys.modules, "vinejax.train", module)
    import vinejax

    monkeypatch.setattr(vinejax, "train", module, raising=False)
    return seen


def test_name_alone_gives_the_named_config():
    config, flags = parse("--config=tiny")
    assert config == configs.get("tiny")
    assert flags == run.RunFlags()


@pytest.mark.parametrize("name", ["tiny", "gsm8k_smollm2", "math_deepseekmath7b"])
def test_every_config_passes_the_parser_unchanged(name: str):
    assert parse("--config", name)[0] == configs.get(name)


@pytest.mark.parametrize("spelling", ["--config.algorithm=grpo", "--config.algorithm grpo"])
def test_the_method_chooses_the_numbers_and_other_flags_change_them(spelling: str):
    words = ["--config=math_rho1b", *spelling.split()]
    assert parse(*words)[0] == configs.get("math_rho1b", "grpo")
    assert parse(*words)[0].advantages.whiten is False
    changed, _ = parse("--config.advantages.whiten", *words, "--config.update.kl=0")
    assert (changed.advantages.whiten, changed.update.kl) == (True, 0)
    assert changed.algorithm == "grpo"


def test_a_preset_leaves_alone_what_is_no_choice_of_the_method():
    config, _ = parse("--config=math_rho1b", "--config.algorithm=rloo", "--choices=authors")
    assert config.advantages.whiten is False
    assert choices(config)["whitening"] == "not of algorithm rloo"
    ppo, _ = parse("--config=math_rho1b", "--config.algorithm=ppo", "--choices=authors")
    assert ppo.advantages.whiten is True


def test_fields_are_flags_with_underscores_or_hyphens():
    config, _ = parse(
        "--config=tiny",
        "--config.update.learning_rate=1e-3",
        "--config.sampling.max-new-tokens",
        "48",
        "--config.seed=7",
        "--config.values.states=every:4",
        "--config.policy.architecture.hidden=64",
        "--config.task.options.length=4",
    )
    assert config.update.learning_rate == 1e-3
    assert config.sampling.max_new_tokens == 48
    assert config.seed == 7
    assert config.values.states == "every:4"
    assert config.policy.architecture is not None
    assert config.policy.architecture.hidden == 64
    assert config.task.options is not None
    assert config.task.arguments()["length"] == 4


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["=true"], True),
        (["=True"], True),
        (["=false"], False),
        (["", "False"], False),
        (["", "false"], False),
        ([""], True),
    ],
)
def test_booleans_take_values(words: list[str], value: bool):
    config, _ = parse("--config=tiny", "--config.advantages.permute" + words[0], *words[1:])
    assert config.advantages.permute is value


def test_optional_fields_take_none_and_values():
    config, _ = parse("--config=gsm8k_smollm2", "--config.values.max_step=None")
    assert config.values.max_step is None
    config, _ = parse("--config=gsm8k_smollm2", "--config.evaluation.test_problems=3")
    assert config.evaluation.test_problems == 3


def test_flags_of_the_command():
    _, flags = parse("--config=tiny", "--out=somewhere", "--resume", "--dry-run", "--json=true")
    assert flags == run.RunFlags(out=Path("somewhere"), resume=True, dry_run=True, json=True)


@pytest.mark.parametrize("name", ["policy", "sft"])
def test_a_model_on_disk_replaces_the_architecture(name: str):
    config, _ = parse("--config=tiny", f"--config.{name}.path=folder")
    assert config.policy.architecture is None
    config.validate()


def test_another_task_brings_its_own_options():
    config, _ = parse("--config=tiny", "--config.task.name=gsm8k")
    assert config.task.options == Gsm8kOptions()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["--config=NAME is missing", "tiny"]),
        (["--resume"], ["--config=NAME is missing", "tiny"]),
        (["--out=nowhere"], ["--config=NAME is missing", "tiny"]),
        (["--out=nowhere", "--resume"], ["--out is nowhere", "no run", "--config=NAME"]),
        (["--out=nowhere", "--resume=false"], ["--config=NAME is missing", "tiny"]),
        (["--config=tinny"], ["'tinny'", "did you mean tiny"]),
        (["--config=tiny", "--config.learning_rate=1"], ["--config.update.learning_rate"]),
        (["--config=tiny", "--config.value.k=1"], ["--config.value.k", "--config.values.k"]),
        (["--config=tiny", "--k=5"], ["unknown option --k; did you mean --config.values.k?"]),
        (["--config=tiny", "--values.K=5"], ["did you mean --config.values.k?"]),
        (["--config=tiny", "--iteration=5"], ["did you mean --config.iterations?"]),
        (["--config=tiny", "--sedd=5"], ["did you mean --config.seed or"]),
        (
            ["--config=tiny", "--learning_rate=1"],
            ["did you mean --config.update.learning_rate or", "or --config.sft.learning_rate?"],
        ),
        (["--config=tiny", "--resum"], ["--resum", "did you mean --resume"]),
        (["--config=tiny", "--config.prompts=many"], ["--config.prompts", "'many'", "int"]),
        (["--config=tiny", "--config.prompts=2.5"], ["--config.prompts", "'2.5'", "int"]),
        (["--config=tiny", "--config.update.kl=no"], ["--config.update.kl", "'no'", "float"]),
        (
            ["--config=tiny", "--config.advantages.whiten=maybe"],
            ["--config.advantages.whiten", "'maybe'", "'True', 'False'"],
        ),
        (
            ["--config=tiny", "--config.update.decay=cosine"],
            ["--config.update.decay", "'cosine'", "'linear', 'constant'"],
        ),
        (["--config=tiny", "--config.prompts=3"], ["update.minibatch", "prompts * samples = 12"]),
        (["--config=tiny", "--config.task.options.length=0"], ["length=0", "at least 1"]),
        (
            ["--config=math_rho1b", "--config.task.path=nowhere", "--dry_run"],
            ["task.path: there is no folder 'nowhere'", "math500.jsonl"],
        ),
        (
            ["--config=math_rho1b", "--config.policy.tokenizer=./nowhere", "--dry_run"],
            ["policy.tokenizer: there is no folder './nowhere'"],
        ),
        (["--config=tiny", "--config.algorithm=grop"], ["algorithm", "grop", "did you mean grpo"]),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_valid(
    argv: list[str], words: list[str], trained: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    try:
        code = run.main(argv)
    except SystemExit as stop:  # the parser's own way out
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    message = " ".join(captured.err.replace("│", " ").split())
    for word in words:
        assert word in message
    assert "config" not in trained  # nothing was started


@pytest.mark.parametrize("argv", [["--help"], ["--config=tiny", "--help"]])
def test_help_shows_every_field(argv: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        run.main(argv)
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for field in ("update.learning_rate", "policy.architecture.hidden", "task.options.sloppy"):
        assert f"--config.{field}" in text
    assert "gsm8k_rho1b" in text


def test_run_is_called_with_config_folder_and_resume(trained: dict[str, Any]):
    assert run.main(["--config=tiny", "--config.seed=3", "--resume", "--profile=2"]) == 0
    assert trained["profile"] == 2
    assert trained["config"].seed == 3
    assert trained["out"] == Path("runs/tiny-vineppo-seed3")
    assert trained["resume"] is True


@pytest.mark.parametrize("wrong", ["--profile=51", "--profile=-1"])
def test_a_profile_of_an_iteration_that_is_not_there_is_refused(
    wrong: str, trained: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    assert run.main(["--config=tiny", wrong]) == 2
    assert "give an iteration, 1 to 50" in capsys.readouterr().err
    assert "config" not in trained


def test_json_summary_is_the_last_line(trained: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    assert run.main(["--config=tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"final_pass_at_1": 0.5}


def test_dry_run_prints_the_plan_and_trains_nothing(
    trained: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    assert run.main(["--config=tiny", "--dry_run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["episodes_per_iteration"] == 64
    assert plan["updates_per_iteration"] == 4
    assert plan["updates"] == 200
    assert "config" not in trained


@pytest.mark.parametrize(
    ("name", "iterations", "updates", "contexts", "sequence"),
    [
        ("math_rho1b", 1000, 16_000, [2047, 2047, 2047], 2048),
        ("math_deepseekmath7b", 1000, 16_000, [4095, 2499, 4095], 2499),
        ("gsm8k_rho1b", 650, 10_400, [2047, 2047, 2047], 2048),
        ("gsm8k_deepseekmath7b", 650, 10_400, [4095, 2499, 2047], 2499),
    ],
)
def test_dry_runs_of_the_paper_print_its_numbers(
    name: str,
    iterations: int,
    updates: int,
    contexts: list[int],
    sequence: int,
    capsys: pytest.CaptureFixture[str],
):
    assert run.main([f"--config={name}", "--dry_run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["iterations"], plan["updates"]) == (iterations, updates)
    assert (plan["prompts_per_iteration"], plan["episodes_per_iteration"]) == (64, 512)
    assert (plan["updates_per_iteration"], plan["rollouts_per_state"]) == (16, 9)
    assert (plan["prompt_tokens_at_most"], plan["new_tokens_at_most"]) == (1512, 1024)
    assert list(plan["context_tokens"].values()) == contexts
    assert plan["training_sequence_at_most"] == sequence
    assert plan["sampling"] == {"temperature": 0.6, "top_p": 0.9}
    assert plan["batch"]["minibatch"] == 64
    assert (plan["update_epochs"], plan["learning_rate"], plan["clip"]) == (2, 1e-6, 0.2)
    assert list(plan["kl_k3"].values()) == [1e-4, 10.0]
    assert list(plan["schedule"].values()) == [0.03, "logarithmic", "linear"]
    assert list(plan["evaluation"].values())[1:] == [16, 0.35, 0.9]
    assert list(plan["checkpoint"].values()) == [10, 60 if "deepseek" in name else 40]
    assert plan["problems"] == "not checked: task.path is not set"
    assert "hub id" in plan["tokenizer"]


@pytest.mark.parametrize(
    ("name", "sizes"), [("math", [11_500, 500, 500]), ("gsm8k", [7_100, 373, 1_319])]
)
def test_dry_run_checks_data_and_tokenizer_that_are_here(
    name: str, sizes: list[int], capsys: pytest.CaptureFixture[str]
):
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    tokenizer = f"--config.policy.tokenizer={data / 'tokenizers' / 'llama2'}"
    argv = [f"--config={name}_rho1b", f"--config.task.path={data}", tokenizer]
    assert run.main([*argv, "--dry_run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert list(plan["problems"].values()) == sizes
    assert plan["tokenizer"].endswith("llama2, 32000 ids")
    assert {own["right"] for own in plan["reference_solutions"].values()} == {8}
    over = [own["over_max_prompt_tokens"] for own in plan["prompt_tokens"].values()]
    assert over == [2 if name == "math" else 0, 0, 0]


def test_exit_codes_of_a_run(trained: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    def raises(error: Exception) -> Any:
        def then() -> None:
            raise error

        return then

    trained["then"] = raises(UserError("the folder holds another run"))
    assert run.main(["--config=tiny"]) == 2
    assert "error: the folder holds another run" in capsys.readouterr().err
    trained["then"] = raises(Preempted("saved iteration 7"))
    assert run.main(["--config=tiny"]) == 75
    assert "--resume" in capsys.readouterr().err
    trained["then"] = raises(RuntimeError("a fault"))
    with pytest.raises(RuntimeError):  # Python prints the traceback and exits with 1
        run.main(["--config=tiny"])


def test_compile_cache_leaves_the_environment_alone_where_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    cli.use_compile_cache()
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    cli.use_compile_cache()
    assert cli.os.environ["JAX_COMPILATION_CACHE_DIR"].endswith("vinejax/xla")


@pytest.mark.parametrize(
    ("flag", "value", "read"),
    [("seed", "3", 3), ("sampling.temperature", "0.6", 0.6), ("values.k", "9", 9)],
)
def test_a_number_may_stand_behind_a_blank_whatever_its_default(flag: str, value: str, read: float):
    """0 and 1 are equal to False and True in Python, but they are no switches."""
    config, _ = cli.parse(["--config=tiny", f"--config.{flag}", value], run.RunFlags(), "run", "")
    assert get(config, flag) == read


def test_an_option_in_other_capitals_is_the_nearest():
    with pytest.raises(UserError, match=r"did you mean --config\.values\.k\?"):
        cli.parse(["--config=tiny", "--config.values.K=9"], run.RunFlags(), "run", "")
