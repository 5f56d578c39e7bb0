"""What an output folder may hold: nothing, or a run of this configuration and --resume."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, configs, export, run
from tests.e2e import runs
from tests.e2e.test_resume import learned
from vinejax.config import to_dict
from vinejax.report import write_json
from vinejax.train import folder

Refused = Callable[..., str]


@pytest.fixture
def old_run(out: Path) -> Path:
    """A run that was started with the flags of `runs.flags`."""
    config, _ = cli.parse(runs.flags(out), run.RunFlags(), "", "")
    out.mkdir()
    write_json(out / "config.json", to_dict(config))
    return out


def test_a_run_of_another_configuration(refused: Refused, old_run: Path):
    flags = runs.flags(old_run, seed=3, update__kl=0.5, update__microbatch=2, checkpoint__every=3)
    message = refused(*flags, "--resume")
    assert f"{old_run}, which holds a run of another configuration" in message
    assert "seed: 0 -> 3" in message
    assert "update.kl: 0.0001 -> 0.5" in message
    assert "microbatch" not in message  # may change
    assert "with --resume and without --config" in message
    assert "give another --out" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"update__decay": "linear"},
        {"update__decay": "constant"},  # tiny has a warm-up
        {"algorithm": "dpo_positive", "update__decay": "constant", "update__warmup_ratio": 0},
    ],
)
def test_another_length_where_what_is_learned_depends_on_it(
    changes: dict[str, Any], refused: Refused, old_run: Path
):
    config, _ = cli.parse(runs.flags(old_run, **changes), run.RunFlags(), "", "")
    write_json(old_run / "config.json", to_dict(config))
    message = refused(*runs.flags(old_run, **changes, iterations=8), "--resume")
    for words in ("another length (iterations: 4 -> 8)", "It cannot be resumed as that"):
        assert words in message
    dpo = config.algorithm == "dpo_positive"
    assert ("rounds of dpo_positive" if dpo else "update.warmup_ratio is") in message
    assert f"another --out and --start={old_run}" in message
    changed = refused(*runs.flags(old_run, **changes, iterations=8, seed=3), "--resume")
    assert "seed: 0 -> 3" in changed
    assert "iterations: 4 -> 8" in changed


def test_another_length_of_a_run_without_sft(refused: Refused, old_run: Path):
    config, _ = cli.parse(runs.flags(old_run, sft__epochs=0), run.RunFlags(), "", "")
    write_json(old_run / "config.json", to_dict(config))
    message = refused(*runs.flags(old_run, sft__epochs=0, iterations=8), "--resume")
    assert "give another --out" in message
    assert "--start" not in message  # there is nothing to take


def test_a_run_goes_on_with_its_own_configuration(out: Path, capsys: pytest.CaptureFixture[str]):
    """No flag of the first command is repeated; one that may change is given."""
    fields = {"algorithm": "grpo", "sft__epochs": 0, "update__decay": "constant"}
    flags = runs.flags(out, **fields, update__warmup_ratio=0, iterations=1)
    runs.train(*flags)
    whole = out.with_name("whole")
    runs.train(*runs.flags(whole, **fields, update__warmup_ratio=0, iterations=2))
    capsys.readouterr()
    runs.train("--resume", f"--out={out}", "--config.iterations=2")
    assert learned(out) == learned(whole)
    line = f"configuration: tiny as in {out / 'config.json'}, changed by flags: iterations: 1 -> 2"
    assert capsys.readouterr().err.splitlines()[0] == line
    runs.train("--resume", f"--out={out}", "--json")
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == f"configuration: tiny as in {out / 'config.json'}"
    assert json.loads(captured.out.splitlines()[-1])["iterations"] == 2


def test_its_own_configuration_may_not_be_changed_freely(refused: Refused, old_run: Path):
    message = refused(f"--out={old_run}", "--resume", "--config.seed=3")
    assert "seed: 0 -> 3" in message


def test_a_run_without_resume(refused: Refused, old_run: Path):
    message = refused(*runs.flags(old_run))
    assert f"{old_run}, which holds a run" in message
    assert "--resume" in message


def test_a_run_with_an_unreadable_configuration(refused: Refused, old_run: Path):
    (old_run / "config.json").write_text('{"seed": ')
    message = refused(*runs.flags(old_run), "--resume")
    assert f"{old_run / 'config.json'} cannot be read" in message
    message = refused(f"--run={old_run}", f"--to={old_run.parent / 'to'}", command=export.main)
    assert f"{old_run / 'config.json'} cannot be read" in message


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_folder_with_something_else(more: list[str], refused: Refused, out: Path):
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    message = refused(*runs.flags(out), *more)
    assert f"{out}, which is not empty and holds no run" in message
    assert "another folder" in message


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_file(more: list[str], refused: Refused, out: Path):
    out.write_text("a file")
    message = refused(*runs.flags(out), *more)
    assert f"{out} is a file" in message
    message = refused(*runs.flags(out / "below"), *more)
    assert f"--out is {out / 'below'}, but {out} is a file" in message
    assert out.read_text() == "a file"


def test_a_run_that_died_while_it_wrote_its_configuration_can_be_started(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a kill at that moment leaves behind is no reason to refuse the folder for ever."""
    out.mkdir()
    (out / ".config.json.tmp").write_text('{"se')
    config = replace(configs.get("tiny"), seed=1)
    assert folder.check(out, config, resume=True) is False


def test_export_of_no_run(refused: Refused, out: Path, old_run: Path):
    to = out.parent / "to"
    message = refused(f"--run={out.parent / 'nothing'}", f"--to={to}", command=export.main)
    assert "holds no run" in message
    message = refused(f"--run={old_run}", f"--to={to}", command=export.main)
    assert "has no checkpoint yet" in message
    assert not to.exists()
