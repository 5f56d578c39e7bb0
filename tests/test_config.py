"""The rules between configuration fields, their JSON form, and that every field has an effect."""

import ast
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, configs, run
from vinejax import config as configuration
from vinejax import tasks
from vinejax.config import Config, ConfigError

ROOT = Path(__file__).resolve().parents[1]
AVAILABLE = configs.names()


def change(config: Config, **fields: object) -> Config:
    """A copy with other values; `update__clip=0.1` is the field update.clip."""
    for name, value in fields.items():
        section, _, leaf = name.rpartition("__")
        if section:
            part = dataclasses.replace(getattr(config, section), **{leaf: value})
            config = dataclasses.replace(config, **{section: part})
        else:
            config = dataclasses.replace(config, **{name: value})
    return config


@pytest.fixture
def tiny() -> Config:
    return configs.get("tiny")


@pytest.mark.parametrize("name", AVAILABLE)
def test_available_configs_are_valid(name: str):
    config = configs.get(name).validate(tasks.names())
    assert config.name == name
    tasks.get(config.task.name, **config.task.arguments())


@pytest.mark.parametrize("name", AVAILABLE)
@pytest.mark.parametrize("algorithm", configuration.ALGORITHMS)
def test_another_method_changes_its_own_numbers_and_nothing_else(name: str, algorithm: str):
    """What all methods are compared under is the same: start, episodes, sampling, evaluation."""
    before, after = configs.get(name), configs.get(name, algorithm).validate(tasks.names())
    assert before == configs.get(name, "vineppo")
    own = {"algorithm", "advantages.whiten", "update.epochs", "checkpoint.every"}
    changed = {line.partition(":")[0] for line in configuration.differences(before, after)}
    assert changed <= own
    assert after.advantages.whiten is (algorithm not in ("grpo", "rloo"))
    assert after.update.epochs == {"restem": 8, "dpo_positive": 3}.get(algorithm, 2)
    sequences = 2 if algorithm == "dpo_positive" else 1  # in one row of a batch
    assert after.update.microbatch * sequences == before.update.microbatch
    assert after.dpo.beta == (0.3 if "gsm8k" in name else 0.1)


@pytest.mark.parametrize(("model", "every"), [("rho1b", 40), ("deepseekmath7b", 30)])
def test_ppo_saves_as_often_as_the_authors_do(model: str, every: int):
    for task in ("math", "gsm8k"):
        assert configs.get(f"{task}_{model}", "ppo").checkpoint.every == every
        assert configs.get(f"{task}_{model}").checkpoint.every == 10


@pytest.mark.parametrize(("name", "newline"), [("rho1b", True), ("deepseekmath7b", False)])
def test_demonstrations_of_math_end_as_the_authors_do(name: str, newline: bool):
    task = configs.get(f"math_{name}").task
    assert task.arguments()["final_newline"] is newline
    assert task.arguments()["steps"] == "authors"


def test_unknown_config_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean gsm8k_rho1b"):
        configs.get("gsm8k_roh1b")


def test_paper_numbers_of_the_updates():
    # 64 x 8 trajectories / 64 x 2 epochs = 16 updates an iteration.
    assert configs.get("math_rho1b").updates == 16_000
    assert configs.get("gsm8k_deepseekmath7b").updates == 10_400
    assert configs.get("tiny").updates == 200


@pytest.mark.parametrize(
    ("model", "task", "contexts", "sequence"),
    [  # trajectory, rollout, evaluation; then the training sequence
        ("rho1b", "math", (2047, 2047, 2047), 2048),
        ("rho1b", "gsm8k", (2047, 2047, 2047), 2048),
        ("deepseekmath7b", "math", (4095, 2499, 4095), 2499),
        ("deepseekmath7b", "gsm8k", (4095, 2499, 2047), 2499),
    ],
)
def test_paper_contexts(model: str, task: str, contexts: tuple[int, ...], sequence: int):
    config = configs.get(f"{task}_{model}")
    have = (config.sampling.context, config.values.context, config.evaluation.context)
    assert (have, config.update.max_sequence) == (contexts, sequence)
    assert config.values.max_step == (25 if task == "gsm8k" else None)


POOL = {"values__pool": True, "values__budget": "remaining"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"update__minibatch": 24}, ["update.minibatch is 24", "prompts * samples = 64", "32, 64"]),
        ({"update__microbatch": 5}, ["update.microbatch is 5", "update.minibatch = 32"]),
        ({"sft__microbatch": 48}, ["sft.microbatch is 48", "sft.batch = 32"]),
        ({"values__k": 0}, ["values.k is 0", "1 or more"]),
        ({"sampling__temperature": -0.1}, ["sampling.temperature is -0.1", "0 or more"]),
        ({"sampling__temperature": 0.0}, ["sampling.temperature is 0", "greedy"]),
        ({"sampling__temperature": float("nan")}, ["sampling.temperature is nan"]),
        ({"sampling__top_p": 0.0}, ["sampling.top_p is 0.0", "at most 1"]),
        ({"evaluation__top_p": 1.5}, ["evaluation.top_p is 1.5"]),
        ({"values__states": "every:0"}, ["values.states is 'every:0'", "every:N"]),
        ({"values__states": "steps"}, ["values.states is 'steps'", "step, token or every:N"]),
        ({"values__min_samples": -1}, ["values.min_samples is -1", "0 or more"]),
        (
            {"values__min_samples": 2},
            ["values.min_samples is 2", "values.pool is False", "set values.pool=true"],
        ),
        (POOL | {"values__min_samples": 4}, ["values.min_samples is 4", "values.k = 3"]),
        ({"values__pool": True}, ["values.budget is 'state'", "set values.budget=remaining"]),
        (
            POOL | {"values__context": 80},
            ["values.context is 80", "sampling.context is 96", "the same number"],
        ),
        (
            POOL | {"values__deduplicate": False},
            ["values.deduplicate is False", "values.pool is True"],
        ),
        ({"values__plan": "skip"}, ["values.plan is 'skip'", "skip:N or bisect:N"]),
        ({"values__plan": "skip:1"}, ["values.plan is 'skip:1'", "N >= 2"]),
        ({"values__plan": "bisect:4"}, ["values.plan is 'bisect:4'", "values.k = 3", "N <= 3"]),
        (
            POOL | {"algorithm": "ppo"},
            ["values.pool is True", "algorithm is 'ppo'", "only vineppo has it"],
        ),
        (
            {"algorithm": "grpo", "values__plan": "skip:2"},
            ["values.plan is skip:2", "algorithm is 'grpo'"],
        ),
        ({"algorithm": "vinepo"}, ["algorithm is 'vinepo'", "did you mean vineppo"]),
        ({"task__name": "ledgr"}, ["task.name is 'ledgr'", "did you mean ledger"]),
        ({"task__name": "gsm8k"}, ["task.options is LedgerOptions", "Gsm8kOptions"]),
        ({"task__steps": "paper"}, ["task.steps is 'paper'", "ledger"]),
        ({"task__path": "x"}, ["task.path is 'x'", "generates its data"]),
        ({"mesh__data": 0}, ["mesh.data is 0", "-1 for all"]),
        ({"mesh__fsdp": -1}, ["mesh.fsdp is -1"]),
        ({"mesh__tensor": 4}, ["mesh.tensor is 4", "policy.architecture.kv_heads = 2"]),
        ({"policy__path": "x"}, ["policy.path is 'x'", "policy.architecture is set"]),
        ({"policy__architecture": None}, ["policy.path is not set", "--config.policy.path"]),
        (
            {"update__max_sequence": 24},
            ["update.max_sequence is 24", "task.max_prompt_tokens = 24"],
        ),
        ({"name": "a/b"}, ["name is 'a/b'"]),
        (
            {"algorithm": "rloo", "advantages__permute": True},
            ["advantages.permute is True", "algorithm is 'rloo'", "only vineppo has it"],
        ),
        ({"advantages__std": False}, ["advantages.std is False", "only grpo has it"]),
        (
            {"algorithm": "restem", "checkpoint__keep_rollouts": 5},
            ["checkpoint.keep_rollouts is 5", "'restem'", "leave it at 0"],
        ),
        (
            {"algorithm": "restem", "restem__rounds": 4},
            ["restem.rounds is 4", "iterations = 50", "5, 10"],
        ),
        ({"dpo__label_smoothing": 0.5}, ["dpo.label_smoothing is 0.5", "less than 0.5"]),
        ({"critic__gamma": 1.1}, ["critic.gamma is 1.1", "between 0 and 1"]),
        ({"critic__lam": -0.1}, ["critic.lam is -0.1", "between 0 and 1"]),
        ({"critic__clip": 0.0}, ["critic.clip is 0.0", "more than 0"]),
        ({"critic__epochs": 0}, ["critic.epochs is 0", "1 or more"]),
        ({"critic__learning_rate": -1.0}, ["critic.learning_rate is -1.0", "0 or more"]),
        ({"update__learning_rate": -1.0}, ["update.learning_rate is -1.0", "0 or more"]),
        (
            {"sft__learning_rates": (1e-3, 0.0)},
            ["sft.learning_rates has 0.0", "more than 0", "1e-5 3e-5"],
        ),
        ({"sft__learning_rates": (-1e-3,)}, ["sft.learning_rates has -0.001"]),
        ({"sft__learning_rates": (float("inf"),)}, ["sft.learning_rates has inf"]),
        (
            {"sft__learning_rates": (1e-3, 1e-4, 0.001)},
            ["sft.learning_rates has 0.001 twice", "each rate once"],
        ),
        (
            {"sft__learning_rates": (1e-3,), "sft__epochs": 0},
            ["sft.learning_rates is (0.001,)", "sft.epochs is 0", "raise sft.epochs"],
        ),
        (
            {"sft__select": "validation", "sft__epochs": 0},
            ["sft.select is 'validation'", "sft.epochs is 0", "raise sft.epochs"],
        ),
        (
            {"sft__select": "validation", "sft__path": "x", "policy__architecture": None},
            ["sft.select is 'validation'", "sft.path is 'x'", "unset sft.path"],
        ),
    ],
)
def test_bad_values_are_refused_with_field_value_and_remedy(
    tiny: Config, fields: dict[str, object], words: list[str]
):
    with pytest.raises(ConfigError) as error:
        change(tiny, **fields).validate()
    for word in words:
        assert word in str(error.value)


def test_greedy_evaluation_and_greedy_sft_runs_are_allowed(tiny: Config):
    change(tiny, evaluation__temperature=0.0).validate()
    change(tiny, algorithm="sft", sampling__temperature=0.0).validate()


def test_own_method_needs_no_registration_and_may_use_every_field(tiny: Config):
    mine = change(tiny, algorithm="my_methods:Mine")
    change(mine, advantages__std=False, advantages__permute=True).validate()
    change(tiny, algorithm="mine").validate(tasks.names(), ["mine"])


def test_own_task_needs_no_registration(tiny: Config):
    change(tiny, task__name="my_tasks:Puzzle", task__options=None).validate()


@pytest.mark.parametrize(
    ("states", "spacing"), [("step", None), ("token", 1), ("every:1", 1), ("every:16", 16)]
)
def test_spacing_of_states(states: str, spacing: int | None):
    assert configuration.every_n_tokens(states) == spacing


def test_plans_of_states_and_cheaper_values_that_go_together(tiny: Config):
    assert configuration.values_plan("all") == ("all", 0)
    assert configuration.values_plan("skip:3") == ("skip", 3)
    assert configuration.values_plan("bisect:12") == ("bisect", 12)
    change(tiny, values__plan="skip:3").validate()
    change(tiny, **POOL, values__min_samples=3, values__plan="bisect:5").validate()


@pytest.mark.parametrize("name", configs.names())
def test_json_form_gives_the_same_config_back(name: str):
    config = configs.get(name)
    text = json.dumps(configuration.to_dict(config))
    again = configuration.from_dict(json.loads(text))
    assert again == config
    assert configuration.fingerprint(again) == configuration.fingerprint(config)


def test_lists_keep_their_type_in_json(tiny: Config):
    config = change(tiny, sft__learning_rates=(1e-3, 3e-3)).validate()
    again = configuration.from_dict(json.loads(json.dumps(configuration.to_dict(config))))
    assert again == config
    assert configuration.differences(config, again) == ()


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        (["--config.sft.learning_rates", "1e-5", "3e-5", "--json"], (1e-5, 3e-5)),
        (["--config.sft.learning-rates=1e-5", "3e-5"], (1e-5, 3e-5)),
        (["--config.sft.learning_rates"], ()),
    ],
)
def test_lists_are_flags_with_blanks_between(words: list[str], rates: tuple[float, ...]):
    config, _ = cli.parse(["--config=tiny", *words], run.RunFlags(), "run", "")
    assert config.sft.learning_rates == rates


def test_fingerprint_depends_on_every_level(tiny: Config):
    prints = {
        configuration.fingerprint(config)
        for config in (tiny, change(tiny, seed=1), change(tiny, update__clip=0.1))
    }
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"update": {"learning_rat": 1.0}}, "unknown field update.learning_rat; did you mean"),
        ({"prompts": "16"}, "prompts is '16': it must be int"),
        ({"prompts": True}, "prompts is True: it must be int"),
        ({"values": {"max_step": 2.5}}, "values.max_step is 2.5: it must be int or null"),
        ({"advantages": {"whiten": 1}}, "advantages.whiten is 1: it must be bool"),
        (
            {"update": {"decay": "cosine"}},
            "update.decay is 'cosine': it must be linear or constant",
        ),
        ({"sft": {"learning_rates": 1e-5}}, "sft.learning_rates is 1e-05: it must be a list of f"),
        ({"sft": {"learning_rates": [1, "x"]}}, "sft.learning_rates[1] is 'x': it must be float"),
        ({"update": 3}, "update is 3: it must be a group of fields"),
        (
            {"task": {"name": "gsm8k", "options": {"length": 3}}},
            "unknown field task.options.length",
        ),
    ],
)
def test_bad_json_is_refused_by_field(data: dict[str, object], words: str):
    with pytest.raises(ConfigError) as error:
        configuration.from_dict(data)
    assert words in str(error.value)


def test_integers_are_read_as_floats_where_those_are_asked_for():
    config = configuration.from_dict({"update": {"clip": 1}})
    assert isinstance(config.update.clip, float)


def test_resume_may_change_how_long_and_where_but_not_what(tiny: Config):
    same = change(tiny, checkpoint__every=1, grading__workers=1, mesh__fsdp=2)
    same = change(same, engine__slots=4, update__microbatch=16, evaluation__every=5)
    assert configuration.differences(tiny, same) == ()
    constant = change(tiny, update__warmup_ratio=0.0)
    assert configuration.differences(constant, change(constant, iterations=80)) == ()
    other = change(tiny, seed=1, update__kl=0.0)
    assert configuration.differences(tiny, other) == ("seed: 0 -> 1", "update.kl: 0.0001 -> 0.0")


@pytest.mark.parametrize(
    "schedule",
    [{"update__decay": "linear", "update__warmup_ratio": 0.0}, {}],
    ids=["decay", "warm-up"],
)
def test_resume_refuses_other_iterations_where_the_rate_depends_on_them(
    tiny: Config, schedule: dict[str, Any]
):
    old = change(tiny, **schedule)
    (difference,) = configuration.differences(old, change(old, iterations=80))
    assert difference == f"iterations: {old.iterations} -> 80"


def test_the_reason_for_a_fixed_length_is_told(tiny: Config):
    constant = change(tiny, update__warmup_ratio=0.0)
    assert configuration.fixed_length(constant) is None
    assert "update.warmup_ratio is 0.05" in str(configuration.fixed_length(tiny))
    assert "rounds of restem" in str(
        configuration.fixed_length(change(constant, algorithm="restem"))
    )


def test_resume_refuses_another_model(tiny: Config):
    other = change(tiny, policy__path="x", policy__architecture=None)
    names = [line.partition(":")[0] for line in configuration.differences(tiny, other)]
    assert "policy.path" in names
    assert "policy.architecture.hidden" in names


def test_configs_are_immutable(tiny: Config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny.seed = 1  # type: ignore[misc]


# -- An option that nothing reads is a promise that is not kept.


def sections() -> dict[str, type]:
    """Field group -> its class, for example update -> UpdateConfig; "config" is the whole."""
    groups = {
        field.name: type(getattr(Config(), field.name))
        for field in dataclasses.fields(Config)
        if dataclasses.is_dataclass(getattr(Config(), field.name))
    }
    return {"config": Config, "architecture": configuration.Architecture, **groups}


def reads_of(tree: ast.Module, groups: dict[str, type]) -> set[tuple[str, str]]:
    """(group, field) of every `group.field`, also through a parameter typed with the class of the
    group or a variable that was assigned from one."""
    of_class = {cls.__name__: group for group, cls in groups.items()}
    alias = {group: group for group in groups}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name | ast.Attribute):
            hint = node.annotation
            name = hint.id if isinstance(hint, ast.Name) else hint.attr
            if name in of_class:
                alias[node.arg] = of_class[name]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            for target in node.targets:
                if isinstance(target, ast.Name) and node.value.attr in groups:
                    alias[target.id] = node.value.attr
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)
            if name in alias:
                found.add((alias[name], node.attr))
    return found


def test_every_field_is_read_somewhere():
    groups = sections()
    files = [*ROOT.glob("vinejax/**/*.py"), *ROOT.glob("experiments/*.py")]
    read: set[tuple[str, str]] = set()
    for file in files:
        if file.parent != ROOT / "vinejax" / "config":
            read |= reads_of(ast.parse(file.read_text()), groups)
    unread = [
        f"{group}.{field.name}"
        for group, cls in groups.items()
        for field in dataclasses.fields(cls)
        # `TaskConfig.arguments` in config itself carries these to the tasks.
        if (group, field.name)
        not in read | {("task", name) for name in ("path", "steps", "options")}
    ]
    assert not unread, f"nothing reads {', '.join(unread)}"


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_option_is_one_that_the_task_takes(name: str):
    fields = {field.name for field in dataclasses.fields(configuration.OPTIONS[name])}
    assert fields <= tasks.options(name)


def test_every_field_is_documented_for_help():
    source = (ROOT / "vinejax" / "config" / "fields.py").read_text().splitlines()
    tree = ast.parse("\n".join(source))
    for record in tree.body:
        if isinstance(record, ast.ClassDef) and record.decorator_list:
            for field in record.body:
                if isinstance(field, ast.AnnAssign) and "default_factory" not in ast.dump(field):
                    line = source[field.lineno - 1]
                    above = source[field.lineno - 2].strip()
                    assert "  # " in line or above.startswith("# "), line
