"""The example that values other people's solutions, started as its first lines say."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples import values_of_trajectories
from tests.e2e import folders, runs

LONGEST = 60  # lines


def written(path: Path, *rows: tuple[str, str, str]) -> Path:
    """A file of problems, answers and responses."""
    names = ("problem", "answer", "response")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    path.write_text("".join(lines))
    return path


def test_it_fits_on_a_screen():
    assert values_of_trajectories.__file__ is not None
    assert len(Path(values_of_trajectories.__file__).read_text().splitlines()) <= LONGEST


def test_under_a_model_from_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pens = "Tom has 3 pens and gets 4."
    file = written(
        tmp_path / "file.jsonl",
        (pens, "7", "\n3+4=7 pens.\n#### 7\n"),
        (pens, "7", "\n3+4=9 pens, and now\nThat is all.\n#### 9\n"),
        ("Ada has 1 pen.", "1", "\n#### 2\nIs it?"),
    )
    model = folders.make_model(tmp_path / "model")
    assert values_of_trajectories.main([str(file), f"--model={model}", "--k=2"]) == 0
    # A random model never comes to an answer: what is right is right by its last step alone.
    assert capsys.readouterr().out.splitlines() == [
        f"reward 1: {pens}",
        r"  V 0.00  A +1.00  '\n3+4=7 pens.\n#### 7\n'",
        f"reward 0: {pens}",
        r"  V 0.00  A +0.00  '\n3+4=9 pens, and now'",
        r"  V 0.00  A +0.00  '\nThat is all.\n#### 9\n'",
        "reward 0: Ada has 1 pen.",
        r"  V 0.00  A +0.00  '\n#### 2\nIs it?'",
    ]


@pytest.mark.parametrize(
    ("line", "flags", "words"),
    [
        ('{"problem": "1+2"}', ["--config=tiny"], ":1: field 'response' is missing"),
        ("{}", ["--config=tiny"], ":1: field 'problem' is missing"),
        ("no JSON", ["--config=tiny"], ":1: broken line, not JSON"),
        (None, ["--config=tiny"], "cannot be read"),
        ("{}", ["--run=nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_a_line(
    line: str | None, flags: list[str], words: str, tmp_path: Path, capsys: Any
):
    file = tmp_path / "file.jsonl"
    if line is not None:
        file.write_text(line + "\n")
    assert values_of_trajectories.main([str(file), *flags]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert words in shown


@pytest.mark.slow  # a run, too
def test_under_the_policy_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    runs.train(*runs.flags(out, algorithm="sft", sft__epochs=1))
    capsys.readouterr()
    file = written(tmp_path / "file.jsonl", ("1+2+3", "36", "1+2=3\n3+3=6\n#### 36"))
    assert values_of_trajectories.main([str(file), f"--run={out}", "--k=40"]) == 0
    first, *steps = capsys.readouterr().out.splitlines()
    assert first.endswith(": 1+2+3")
    assert [line.rpartition("  ")[2] for line in steps] == [
        r"'1+2=3\n'",
        r"'3+3=6\n'",
        "'#### 36'",
    ]
    values = [float(line.split()[1]) for line in steps]
    assert 0 < values[0] < 1  # the task rewards what the policy does by the sum of its digits
    total = float(first.split()[1].rstrip(":")) - values[0]
    assert sum(float(line.split()[3]) for line in steps) == pytest.approx(total, abs=0.03)
