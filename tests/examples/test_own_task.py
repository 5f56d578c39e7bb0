"""The task in one file: its made rows, a user's own files, and a run on each."""

import json
from pathlib import Path

import pytest

from examples import own_task
from experiments import run
from tests.e2e import runs
from vinejax import tasks
from vinejax.config import UserError
from vinejax.report import read_rollouts
from vinejax.tokenizer import byte_tokenizer

NAME = "examples.own_task:Sums"
# What a prompt or a response of five digits takes.
LENGTHS = {
    "task__max_prompt_tokens": 24,
    "sampling__max_new_tokens": 48,
    "sampling__context": 64,
    "values__context": 64,
    "update__max_sequence": 64,
    "sft__max_length": 64,
    "evaluation__max_new_tokens": 48,
    "evaluation__context": 64,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own files: sums of two digits."""
    for split, size in {"train": 40, "validation": 8, "test": 8}.items():
        rows = [{"ask": f"{n % 10}+{n // 10}", "result": n % 10 + n // 10} for n in range(size)]
        rows = [r | {"work": f"{r['ask']}={r['result']}", "result": f"{r['result']}"} for r in rows]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    return tmp_path


def test_made_rows_are_sums_some_of_whose_steps_are_too_high():
    task, seen, wrong, steps = tasks.get(NAME), set(), 0, 0
    for split, size in own_task.MADE.items():
        problems = task.load(split)
        assert len(problems) == len(size)
        seen |= {p.problem for p in problems}
        for p in problems:
            assert p.answer == str(sum(map(int, p.problem.split("+"))))
            for line in p.solution.split("\n"):
                asked, _, stated = line.partition("=")
                slip = int(stated) - sum(map(int, asked.split("+")))
                assert slip in (0, 1)
                wrong, steps = wrong + slip, steps + 1
    assert len(seen) == sum(map(len, own_task.MADE.values()))
    assert abs(wrong / steps - 0.25) < 0.02


def test_answers_are_compared_as_numbers():
    task = tasks.get(NAME)
    problem = tasks.Problem(id="p", problem="3+8+2", solution="3+8=11\n11+2=13", answer="13")
    assert task.prompt(problem) == "3+8+2: "
    assert task.split_steps(problem.solution) == [0, 7, 14]
    for right in (problem.solution, "=13", "3+8=11\n11+2= 13.0", "=5\n=1.3e1"):
        assert task.grade(problem, right) == 1.0
    for wrong in ("", "13", "=", "=14", "=nan", "13=", "=13 or so"):
        assert task.grade(problem, wrong) == 0.0


def test_rows_come_from_the_folder_and_a_broken_one_is_named(folder: Path):
    problem = tasks.get(NAME, path=str(folder)).load("train")[13]
    assert (problem.problem, problem.solution, problem.answer) == ("3+1", "3+1=4", "4")
    (folder / "test.jsonl").write_text('{"ask": "1+1", "work": "1+1=2", "result": 2}\n')
    with pytest.raises(UserError, match=r"test.jsonl:1: field 'result' is 2, not a text"):
        tasks.get(NAME, path=str(folder)).load("test")


def test_bytes_are_tokens(tmp_path: Path):
    tokenizer = byte_tokenizer()
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id) == (258, 0, 1)
    for text in ("3+8+2: ", "naïve ½ 北京 🙂\n\t\x00", "<bos><eos>", ""):
        ids = tokenizer.encode(text)
        assert len(ids) == len(text.encode())
        assert tokenizer.decode(ids) == text


def test_the_command_of_the_first_lines_is_one(capsys: pytest.CaptureFixture[str]):
    assert own_task.__doc__ is not None
    command = next(line for line in own_task.__doc__.splitlines() if "-m experiments.run" in line)
    assert run.main([*command.split()[4:], "--dry_run"]) == 0
    assert f"  task                                   {NAME}\n" in capsys.readouterr().out


def test_a_run_on_files_of_ones_own(folder: Path, tmp_path: Path):
    out = tmp_path / "run"
    sizes = {"algorithm": "sft", "sft__epochs": 1}
    runs.train(*runs.flags(out, task__name=NAME, task__path=folder, **LENGTHS, **sizes))
    assert runs.summary(out)["task"] == NAME
    assert json.loads((out / "problems.json").read_text())["test"][0] == "test/0"


@pytest.mark.slow  # compiles all of a training iteration
def test_vineppo_on_made_rows(tmp_path: Path):
    out = tmp_path / "run"
    runs.train(*runs.flags(out, task__name=NAME, iterations=1, **LENGTHS))
    records = read_rollouts(out, 1)
    assert all(len(r["values"]) == len(r["state_starts"]) for r in records)
