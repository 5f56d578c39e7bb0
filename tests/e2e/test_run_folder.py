"""What an output folder may hold: nothing, or a run of this configuration and --resume."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, configs, export, run
from tests.e2e import runs
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
    assert "iterations: 4 -> 8" in message


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
