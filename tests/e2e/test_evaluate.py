"""Evaluation by itself finds what the run found, of the run and of its export."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import evaluate, export
from tests.e2e import runs

Refused = Callable[..., str]
FLAGS = {"iterations": 1, "evaluation__samples": 4, "sft__epochs": 1, "evaluation__every": 0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one iteration, and its export."""
    base = tmp_path_factory.mktemp("evaluate")
    runs.train(*runs.flags(base / "run", **FLAGS))
    assert export.main([f"--run={base / 'run'}", f"--to={base / 'exported'}"]) == 0
    return base


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert evaluate.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_run_has_the_accuracy_of_its_summary(trained: Path, capsys: pytest.CaptureFixture[str]):
    before = set(runs.contents(trained / "run"))
    found = result(capsys, f"--run={trained / 'run'}")
    assert found["iteration"] == 1
    summary = runs.summary(trained / "run")
    names = ("pass_at_1", "strict_pass_at_1", "pass_at_4", "majority_at_4", "no_answer_share")
    for name in names:
        assert found[name] == summary[f"final_{name}"]
    assert [found["pass_at_1_low"], found["pass_at_1_high"]] == summary["final_interval"]
    after = runs.contents(trained / "run")
    assert set(after) - before == {"evaluation-test-1.json"}
    assert json.loads(after["evaluation-test-1.json"]) == found


@pytest.mark.parametrize(
    ("argument", "name"), [("--iteration=0", "sft"), ("--iteration=1", "final"), ("--best", "best")]
)
def test_other_policies_of_the_run(
    argument: str, name: str, trained: Path, capsys: pytest.CaptureFixture[str]
):
    found = result(capsys, f"--run={trained / 'run'}", argument)
    summary = runs.summary(trained / "run")
    iterations = {"sft": 0, "final": 1, "best": summary["best_iteration"]}
    assert found["iteration"] == iterations[name]
    assert found["pass_at_1"] == summary[f"{name}_pass_at_1"]


def test_the_export_has_the_same(trained: Path, capsys: pytest.CaptureFixture[str]):
    of_run = result(capsys, f"--run={trained / 'run'}")
    flags = [f for f in runs.flags(trained, **FLAGS) if not f.startswith("--out")]
    flags = [f for f in flags if "architecture" not in f]
    of_model = result(capsys, f"--model={trained / 'exported'}", *flags)
    assert of_model["model"] == str(trained / "exported")
    alike = set(of_run) - {"run", "iteration"}
    assert {k: of_model[k] for k in alike} == {k: of_run[k] for k in alike}


def test_another_split_with_other_settings(trained: Path, capsys: pytest.CaptureFixture[str]):
    assert evaluate.main([
        f"--run={trained / 'run'}",
        "--split=train",
        "--config.evaluation.samples=2",
        "--config.evaluation.problems=3",
    ]) == 0  # fmt: skip
    words = " ".join(capsys.readouterr().out.split())
    assert "split train" in words
    assert "problems 3 " in words
    assert "pass_at_2 " in words
    assert " % (" in words  # an interval
    assert (trained / "run" / "evaluation-train-1.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config=tiny"], "give either --run=DIR, or --model=PATH and --config=NAME"),
        (["--run=nowhere"], "nowhere, which holds no run"),
        (["--model=x", "--config=tiny", "--best"], "--iteration and --best choose a policy of"),
        (["--model=x"], "--config=NAME is missing"),
        (["--model=./nowhere", "--config=tiny"], "there is no such folder"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str, refused: Refused):
    assert words in refused(*arguments, command=evaluate.main)


def test_a_run_stays_what_it_is(trained: Path, refused: Refused):
    run = f"--run={trained / 'run'}"
    message = refused(run, "--config.task.max_prompt_tokens=13", command=evaluate.main)
    assert "task.max_prompt_tokens is 12 in the run" in message
    message = refused(run, "--iteration=7", command=evaluate.main)
    assert "has no checkpoint 7; it has [1]" in message
    message = refused(run, "--config=tiny", command=evaluate.main)
    assert "the run has its own: leave it out" in message
