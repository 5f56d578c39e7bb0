"""What `--dry_run` finds of a task of one's own: long prompts, graders with a fault, poor marks."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples.own_task import Sums
from experiments import run
from vinejax.tasks import Problem

TINY = ("--config=tiny", "--dry_run", "--config.grading.workers=1")


class Raising(Sums):
    """Has the fault that costs every answer its reward."""

    def grade(self, problem: Problem, response: str) -> float:
        return float(problem.meta["gold"] == response)


class RaisingInTheOther(Sums):
    """The same in the grader that is only reported."""

    def grade_strict(self, problem: Problem, response: str) -> float:
        raise NotImplementedError("strict")


class Deaf(Sums):
    """Reads no answer from its own solutions."""

    def extract_answer(self, response: str) -> str | None:
        return None


def task(cls: type[Sums]) -> str:
    return f"--config.task.name={__name__}:{cls.__name__}"


def found(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert run.main([*TINY, *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rows(folder: Path, train: list[str], validation: str = "1+1") -> str:
    """Problems whose prompts have as many tokens as characters, and 3 (BOS, colon, blank)."""
    for split, asks in {"train": train, "validation": [validation], "test": ["1+1"]}.items():
        lines = [json.dumps({"ask": ask, "work": f"{ask}=2", "result": "2"}) for ask in asks]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return f"--config.task.path={folder}"


@pytest.mark.parametrize("cls", [Raising, RaisingInTheOther])
def test_a_grader_that_raises_is_an_error(cls: type[Sums], capsys: pytest.CaptureFixture[str]):
    assert run.main([*TINY, task(cls)]) == 2
    message = capsys.readouterr().err
    method, fault = (
        ("grade", "KeyError: 'gold'") if cls is Raising else ("grade_strict", "NotImplementedError")
    )
    for words in (task(cls).partition("=")[2], f"{method} fails", "train/0", fault):
        assert words in message


def test_a_grader_that_gives_no_full_mark_is_a_warning(capsys: pytest.CaptureFixture[str]):
    plan = found(capsys, task(Deaf))
    assert plan["reference_solutions"]["train"]["right"] == 0
    assert "none of the first 8 reference solutions of train" in plan["warnings"][0]
    assert "train/0 (grade 0)" in plan["warnings"][0]


def test_demonstrations_that_are_wrong_on_purpose_are_counted_only(
    capsys: pytest.CaptureFixture[str],
):
    plan = found(capsys)
    assert plan["problems"] == {"sft": 4000, "train": 2000, "validation": 128, "test": 256}
    marks = plan["reference_solutions"]
    assert 0 < marks["sft"]["right"] < 8
    assert marks["sft"]["first_not_right"].startswith("sft/")
    assert marks["train"] == {"graded": 8, "right": 8}
    assert plan["warnings"] == []


def test_long_prompts_are_counted_by_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = rows(tmp_path, ["1+1"] * 20 + ["1+1+0+0+0"] * 3)
    limit = "--config.task.max_prompt_tokens=8"
    plan = found(capsys, task(Sums), path, limit)
    assert plan["prompt_tokens"] == {
        "train": {"longest": 12, "over_max_prompt_tokens": 3},
        "validation": {"longest": 6, "over_max_prompt_tokens": 0},
        "test": {"longest": 6, "over_max_prompt_tokens": 0},
    }
    (warning,) = plan["warnings"]
    for words in ("3 of 23 train problems", "task.max_prompt_tokens = 8", "12 tokens", "left out"):
        assert words in warning
    assert run.main([*TINY, task(Sums), path, limit]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Run"
    assert shown[-1] == f"warning: {warning}"  # nothing hides it


@pytest.mark.parametrize(
    ("train", "validation", "words"),
    [
        (["1+1"] * 9 + ["1+1" * 10] * 9, "1+1", "only 9 of 18 training problems"),
        (["1+1"] * 18, "1+1" * 50, "a validation prompt has 153 tokens"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    train: list[str],
    validation: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    path = rows(tmp_path, train, validation)
    assert run.main([*TINY, task(Sums), path]) == 2
    assert words in capsys.readouterr().err
