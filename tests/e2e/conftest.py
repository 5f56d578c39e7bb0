"""What holds for every refusal of bad input."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import run
from tests.e2e import runs
from vinejax.train import folder

Refused = Callable[..., str]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def refused(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    """Runs with arguments; the message, once all that holds for any refusal is checked."""

    def write(*_: object) -> None:
        pytest.fail("the input was accepted")

    monkeypatch.setattr(folder, "write", write)

    def call(*arguments: str, command: Callable[..., int] = run.main) -> str:
        kept = runs.contents(out) if out.is_dir() else None
        try:
            code = command(arguments)
        except SystemExit as stop:  # the parser's way
            code = stop.code
        captured = capsys.readouterr()
        assert code == 2, captured.err
        assert captured.out == ""
        assert "Traceback" not in captured.err
        assert (runs.contents(out) if out.is_dir() else None) == kept
        return " ".join(captured.err.replace("│", " ").split())

    return call
