"""A disk that is full or read-only ends a run with one message, and loses nothing that was saved.

What is written goes to /dev/full, where every write fails as on a full disk, or the call into the
library that writes raises what the system would.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, run
from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run
from vinejax import files, report
from vinejax.checkpoint import Checkpoints, whole
from vinejax.config import StorageError
from vinejax.journal import Journal
from vinejax.report.rollouts import iterations
from vinejax.train import folder

CHANGES = {
    "algorithm": "grpo",
    "sft__epochs": 0.2,
    "evaluation__every": 0,
    "checkpoint__keep_rollouts": 2,
}
Break = Callable[[pytest.MonkeyPatch, Path], None]
Failing = Callable[..., str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("full") / "finished"
    runs.train(*runs.flags(out, **CHANGES))
    return out


@pytest.fixture
def interrupted(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run, as if it had been killed behind its checkpoint of iteration 2."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "checkpoints" / "policy" / "4")
    (out / "summary.json").unlink()
    return out


def no_space(path: Path | None = None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path and str(path))


def in_metrics(patch: pytest.MonkeyPatch, out: Path) -> None:
    """At the line of iteration 3."""
    write = report.MetricsLog.write

    def full(self: report.MetricsLog, metrics: Any) -> None:
        self._file.close()
        self._file = open("/dev/full", "ab")  # noqa: SIM115
        write(self, metrics)

    patch.setattr(report.MetricsLog, "write", full)


def in_journal(patch: pytest.MonkeyPatch, out: Path) -> None:
    append = Journal.append

    def full(self: Journal, *arguments: Any) -> None:
        self._file.close()
        self._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115
        append(self, *arguments)

    patch.setattr(Journal, "append", full)
    (out / "verdicts.jsonl").write_text("")  # nothing is known: every answer is graded


def in_rollouts(patch: pytest.MonkeyPatch, out: Path) -> None:
    (out / "rollouts" / ".000003.jsonl.gz.tmp").symlink_to("/dev/full")


def in_summary(patch: pytest.MonkeyPatch, out: Path) -> None:
    (out / ".summary.json.tmp").symlink_to("/dev/full")


def in_checkpoint(patch: pytest.MonkeyPatch, out: Path) -> None:
    """In the thread that writes it."""

    def full(self: Checkpoints) -> None:
        raise no_space(self.folder / "4")

    patch.setattr(Checkpoints, "_seal", full)


def in_the_call_that_saves(patch: pytest.MonkeyPatch, out: Path) -> None:
    """As the library's own errors are: another type, the system's words in the text."""

    def full(*_: Any, **__: Any) -> None:
        raise ValueError("RESOURCE_EXHAUSTED: [OS error 28: ENOSPC No space left on device]")

    patch.setattr("orbax.checkpoint.CheckpointManager.save", full)


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Goes on with a run that something breaks; what it said, in a single line."""

    def call(out: Path, place: Break, **changes: Any) -> str:
        with monkeypatch.context() as patch, runs.one_device():
            place(patch, out)
            assert run.main([*runs.flags(out, **CHANGES | changes), "--resume"]) == cli.STORAGE
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "Traceback" not in shown.err
        (line,) = (line for line in shown.err.splitlines() if line.startswith("error: "))
        return line

    return call


def mend(out: Path) -> None:
    for path in out.rglob("*"):
        if path.is_symlink():
            path.unlink()


@pytest.mark.parametrize(
    ("place", "file", "safe"),
    [
        runs.slow(in_metrics, "metrics.jsonl", 2),
        (in_checkpoint, "checkpoints/policy/4", 2),
        runs.slow(in_journal, "verdicts.jsonl", 2),
        runs.slow(in_rollouts, "rollouts/000003.jsonl.gz", 2),
        runs.slow(in_the_call_that_saves, "", 2),
        runs.slow(in_summary, "summary.json", 4),
    ],
)
def test_a_full_disk_ends_the_run_and_what_was_saved_goes_on(
    finished: Path, interrupted: Path, failing: Failing, place: Break, file: str, safe: int
):
    out = interrupted
    said = failing(out, place)
    for words in (
        "could not be written: no space left on device",
        f"The checkpoint of iteration {safe} in {out / 'checkpoints' / 'policy'} is safe",
        "free space on that disk",
        "--resume",
    ):
        assert words in said
    assert str(out / file if file else out) in said
    mend(out)
    runs.train(*runs.flags(out, **CHANGES), "--resume")
    assert_same_run(out, finished)
    assert iterations(out) == [3, 4]


def test_a_full_disk_in_supervised_fine_tuning_leaves_its_checkpoint(
    tmp_path: Path, failing: Failing
):
    out, seal = tmp_path / "run", Checkpoints._seal

    def at_60(patch: pytest.MonkeyPatch, out: Path) -> None:
        def full(self: Checkpoints) -> None:
            if self._saving == 60:
                raise no_space()
            seal(self)

        patch.setattr(Checkpoints, "_seal", full)

    said = failing(out, at_60, sft__epochs=3)
    assert f"The checkpoint of SFT step 50 in {out / 'checkpoints' / 'sft'} is safe" in said
    assert whole(out / "checkpoints" / "sft") == [50]


def test_a_report_that_finds_no_space_is_a_line_and_the_run_is_complete(
    interrupted: Path, capsys: pytest.CaptureFixture[str]
):
    (interrupted / ".report.html.tmp").symlink_to("/dev/full")
    runs.train(*runs.flags(interrupted, **CHANGES), "--resume")
    assert "report.html was not written" in capsys.readouterr().err
    assert (interrupted / "summary.json").exists()


def test_a_folder_that_becomes_read_only(interrupted: Path, failing: Failing):
    def read_only(patch: pytest.MonkeyPatch, out: Path) -> None:
        def refuse(path: Any, mode: str = "r", *more: Any) -> Any:
            if "w" in mode and "rollouts" in str(path):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return open(path, mode, *more)

        patch.setattr(files, "open", refuse, raising=False)

    said = failing(interrupted, read_only)
    assert "could not be written: read-only file system" in said
    assert "The checkpoint of iteration 2" in said
    assert "make the folder writable" in said


def test_before_the_first_checkpoint_that_is_said(tmp_path: Path):
    with (
        pytest.raises(StorageError, match=f"There is no checkpoint in {tmp_path} yet"),
        folder.storing(tmp_path),
    ):
        raise RuntimeError("a thread failed") from no_space(tmp_path / "x")


def test_what_is_no_matter_of_the_run_folder_passes_through(tmp_path: Path):
    """A file of somebody else that may not be read says nothing about the disk."""
    for error in (PermissionError(errno.EACCES, "no", "/etc/shadow"), ValueError("28")):
        with pytest.raises(type(error)), folder.storing(tmp_path):
            raise error


def test_other_commands_name_the_file(capsys: pytest.CaptureFixture[str]):
    def command(_: list[str]) -> None:
        raise no_space(Path("plan.json"))

    assert cli.execute(command, []) == cli.STORAGE
    assert "plan.json could not be written" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        cli.execute(lambda _: Path("nowhere").rename("else"), [])
