"""The named choices: what configurations take, the presets, the flag, and the table of README."""

import dataclasses
import json
from pathlib import Path

import pytest

from experiments import cli, configs, run
from vinejax.config import Config, ConfigError, choices, get, with_preset
from vinejax.config.choices import CHOICES, PRESETS, markdown
from vinejax.train import folder

README = Path(__file__).resolve().parents[1] / "README.md"
PAPER = ("math_rho1b", "math_deepseekmath7b", "gsm8k_rho1b", "gsm8k_deepseekmath7b")
FIELDS = [choice for choice in CHOICES if choice.field is not None]


def parse(*argv: str) -> Config:
    return cli.parse(argv, run.RunFlags(), "run", "Train.")[0]


def test_there_are_nineteen_and_each_has_a_field_or_a_reason():
    assert len({choice.name for choice in CHOICES}) == len(CHOICES) == 19
    assert all((choice.field is None) == bool(choice.here) for choice in CHOICES)
    assert list(choices(configs.get("tiny"))) == [choice.name for choice in CHOICES]


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_is_run_as_the_authors_do_but_for_an_end_that_was_never_sampled(name: str):
    taken = choices(configs.get(name))
    others = {
        choice.name
        for choice in FIELDS
        if not taken[choice.name].startswith(("authors", "not of task"))
    }
    assert others == {"eos_after_stop_string"}


@pytest.mark.parametrize("name", [*PAPER, "tiny"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_every_choice_of_the_task_and_nothing_else(name: str, preset: str):
    before = configs.get(name)
    after = with_preset(before, preset)
    after.validate()
    for choice in FIELDS:
        concerned = choice.task in (None, before.task.name)
        taken = choices(after)[choice.name]
        assert (preset in taken.partition(":")[0]) == concerned, taken
    back = with_preset(before, "authors")
    assert with_preset(after, "authors") == back
    mine = {choice.field for choice in FIELDS}
    changed = {
        f"{group.name}.{field}" if field else group.name
        for group in dataclasses.fields(Config)
        for field in names_in(getattr(before, group.name))
        if get(before, join(group.name, field)) != get(after, join(group.name, field))
    }
    assert {name for name in changed if name != "task.options"} <= mine


def names_in(record: object) -> list[str]:
    if not dataclasses.is_dataclass(record):
        return [""]
    return [field.name for field in dataclasses.fields(record)]


def join(group: str, field: str) -> str:
    return f"{group}.{field}" if field else group


def test_a_value_that_neither_has_is_named():
    before = configs.get("gsm8k_rho1b")
    config = dataclasses.replace(before, values=dataclasses.replace(before.values, max_step=7))
    assert choices(config)["step_cap"] == "other: values.max_step=7"
    assert choices(config)["formula_cuts"] == "not of task gsm8k"


def test_the_flag_sets_them_all_and_other_flags_stand_above_it():
    clean = parse("--config=gsm8k_rho1b", "--choices=clean")
    assert clean == with_preset(configs.get("gsm8k_rho1b"), "clean")
    assert clean.values.max_step is None
    config = parse("--choices", "clean", "--config=math_rho1b", "--config.task.steps=authors")
    assert (config.task.steps, config.values.budget) == ("authors", "remaining")
    with pytest.raises(ConfigError, match="choices is 'cleen'; did you mean clean"):
        parse("--config=tiny", "--choices=cleen")


def test_dry_run_and_run_folder_have_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run.main(["--config=tiny", "--choices=authors", "--dry_run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["choices.eos_after_stop_string"] == "authors: sampling.append_eos=trained"
    config = configs.get("tiny")
    folder.write(tmp_path, config)
    assert json.loads((tmp_path / "choices.json").read_text()) == choices(config)


def test_the_table_of_the_readme():
    table = markdown()
    assert len(table.splitlines()) == 2 + len(CHOICES)

    text = README.read_text()
    assert table in text
