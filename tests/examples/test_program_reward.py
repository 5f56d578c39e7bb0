"""A program that decides the reward: its exit codes, its faults, and what workers allow."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples import program_reward
from examples.program_reward import ByProgram
from experiments import run
from tests.e2e import runs
from vinejax.grading import GraderPool, Verdict
from vinejax.journal import Journal
from vinejax.tasks import Problem

PROBLEM = Problem(id="p", problem="1+1", solution="1+1=2\n#### 2", answer="2")
NAME = "examples.program_reward:ByProgram"


class Shell(ByProgram):
    """The response is a script; `$0` is the line that a right one would hold."""

    program = ("sh", "-s")
    timeout = 0.5


class Patient(Shell):
    """Has a time limit of its own that the worker does not live to see."""

    timeout = 60.0


class Short(ByProgram):
    """Two facts a problem, for a short run."""

    def __init__(self) -> None:
        super().__init__(length=2, sft_size=160, train_size=40, validation_size=10, test_size=10)


class Connecting(ByProgram):
    """Is no program, but uses the network."""

    def grade(self, problem: Problem, response: str) -> float:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
        return 1.0


def test_the_answer_must_be_a_line_of_the_response():
    responses = ["1+1=2\n#### 2", "1+1=3\n#### 3", "#### 2", "#### 22", "", "\n#### 2\nmore"]
    with GraderPool(NAME, {}, workers=1) as graders:
        verdicts = graders.grade([(PROBLEM, response) for response in responses])
    assert verdicts == [Verdict(float(i in (0, 2, 5))) for i in range(6)]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_program_may_say_and_how_it_may_fail(workers: int, tmp_path: Path):
    said = {
        "exit 0": Verdict(1.0),
        "exit 1": Verdict(0.0),
        "echo 0.25": Verdict(0.25),
        "echo 0.25; exit 1": Verdict(0.0),
    }
    faults = {
        "exit 2": "error: CalledProcessError",
        "kill -9 $$": "error: CalledProcessError",
        "sleep 30": "error: TimeoutExpired",
        "echo yes": "error: ValueError: could not convert",
        "echo 7": "error: ValueError: grade 7.0 is outside [0, 1]",
    }
    journal = Journal.open(tmp_path / "verdicts.jsonl")
    began = time.monotonic()
    with journal, GraderPool(f"{__name__}:Shell", {}, workers, journal=journal) as graders:
        *verdicts, last = graders.grade([(PROBLEM, text) for text in [*said, *faults, "exit 00"]])
    assert time.monotonic() - began < 20
    assert verdicts[: len(said)] == list(said.values())
    for verdict, note in zip(verdicts[len(said) :], faults.values(), strict=True):
        assert verdict.grade == 0.0
        assert verdict.note.startswith(note)
    assert last == Verdict(1.0)  # the worker is as good as before
    assert "TimeoutExpired" in (tmp_path / "verdicts.jsonl").read_text()


def test_the_wall_clock_is_for_each_program_and_kills_the_worker_of_a_long_one(
    monkeypatch: pytest.MonkeyPatch,
):
    quick = [f"sleep 0.4 # {i}" for i in range(4)]  # together they would take too long
    with GraderPool(f"{__name__}:Patient", {}, workers=1) as graders:
        graders.grade([(PROBLEM, "exit 1")])
        monkeypatch.setattr(graders, "_wall", 1.2)
        *verdicts, slow, last = graders.grade([(PROBLEM, t) for t in [*quick, "sleep 5", "exit 0"]])
    assert verdicts == [Verdict(1.0)] * 4
    assert slow == Verdict(0.0, "timeout")
    assert last == Verdict(1.0)


class Dying(ByProgram):
    """Its worker dies while the program goes on."""

    def grade(self, problem: Problem, response: str) -> float:
        subprocess.Popen(["sh", "-c", response])
        os._exit(3)


def late(file: Path) -> str:
    """The start of a script: what writes a file when its worker has long been gone."""
    return f"(sleep 2; echo late > {file}) &"


def assert_never_written(file: Path) -> None:
    time.sleep(3)
    assert not file.exists()


def test_a_program_that_is_not_killed_writes_its_file(tmp_path: Path):
    subprocess.run(["sh", "-c", f"{late(tmp_path / 'file')} wait"], check=True)
    assert (tmp_path / "file").exists()


def test_programs_end_with_a_worker_that_the_wall_clock_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with GraderPool(f"{__name__}:Patient", {}, workers=1) as graders:
        graders.grade([(PROBLEM, "exit 1")])
        monkeypatch.setattr(graders, "_wall", 0.5)
        verdicts = graders.grade([(PROBLEM, f"{late(tmp_path / 'file')} sleep 60")])
        assert verdicts == [Verdict(0.0, "timeout")]
        assert_never_written(tmp_path / "file")


def test_programs_end_with_a_worker_that_dies(tmp_path: Path):
    with GraderPool(f"{__name__}:Dying", {}, workers=1) as graders:
        verdicts = graders.grade([(PROBLEM, f"{late(tmp_path / 'file')} sleep 60")])
        assert verdicts == [Verdict(0.0, "crash")]
        assert_never_written(tmp_path / "file")


def test_programs_end_with_the_pool(tmp_path: Path):
    """One that its program left behind when it had given its verdict."""
    script = f"{late(tmp_path / 'file')} exit 0"
    with GraderPool(f"{__name__}:Patient", {}, workers=1) as graders:
        assert graders.grade([(PROBLEM, f"({script}) >/dev/null 2>&1 </dev/null")]) == [Verdict(1)]
    assert_never_written(tmp_path / "file")


def test_programs_end_with_a_run_that_is_killed(tmp_path: Path):
    file, began = tmp_path / "file", tmp_path / "began"
    code = (
        "from tests.examples.test_program_reward import *\n"
        f"pool = GraderPool('{__name__}:Patient', {{}}, workers=1)\n"
        f"pool.grade([(PROBLEM, 'touch {began}; {late(file)} sleep 60')])\n"
    )
    main = subprocess.Popen([sys.executable, "-c", code], cwd=runs.ROOT)
    deadline = time.monotonic() + 60
    while not began.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    main.kill()
    main.wait()
    assert_never_written(file)


def test_workers_of_such_a_task_have_no_network_all_the_same():
    with GraderPool(f"{__name__}:Connecting", {}, workers=1) as graders:
        (verdict,) = graders.grade([(PROBLEM, "")])
    assert verdict.note.startswith("error: PermissionError")


def test_a_run_is_graded_by_the_program(tmp_path: Path):
    out = tmp_path / "run"
    runs.train(*runs.flags(out, task__name=f"{__name__}:Short", algorithm="sft", sft__epochs=1))
    found = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    assert {"validation", "test"} <= {line["phase"] for line in found}
    assert {tuple(v) for line in found for v in line["verdicts"].values()} <= {(0, ""), (1, "")}


def test_the_command_of_the_first_lines_is_one(capsys: pytest.CaptureFixture[str]):
    assert program_reward.__doc__ is not None
    text = program_reward.__doc__.replace("\\\n", " ")
    command = next(line for line in text.splitlines() if "-m experiments.run" in line)
    assert run.main([*command.split()[4:], "--dry_run"]) == 0
    assert f"  task                                   {NAME}\n" in capsys.readouterr().out
