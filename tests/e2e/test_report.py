"""Every run leaves a report, and no run ends by one that cannot be written."""

import json
from pathlib import Path

import pytest

from experiments import report as command
from tests.e2e import runs
from tests.report.test_page import about, block
from vinejax.report import page


def test_a_run_leaves_a_report_with_steps_values_and_rollouts(out: Path):
    runs.train(*runs.flags(out, iterations=1, sft__epochs=1, evaluation__every=1))
    text = (out / page.FILE).read_text()
    (run,) = about(text)["runs"]
    (iteration,) = run["iterations"]
    assert iteration["sampled"] == iteration["shown"] == 8  # 4 problems x 2 trajectories
    assert run["notes"] == []
    items = block(text, iteration["id"])["items"]
    for m in iteration["texts"]:
        assert len(items[m]["s"]) == len(items[m]["v"]) == len(items[m]["k"])
        for value, rewards in zip(items[m]["v"], items[m]["k"], strict=True):
            assert sum(rewards) / len(rewards) == pytest.approx(value, abs=1e-4)
        assert [len(texts) for texts in block(text, f"{iteration['id']}-{m}")] == [
            len(rewards) for rewards in items[m]["k"]
        ]
    assert iteration["texts"]
    # The task gives 0, 0.5 and 1; the validation of the start is written down and drawn.
    (line,), start = runs.metrics(out), json.loads((out / "start.json").read_text())
    assert line["full_marks_share"] <= line["pass_at_1"] == pytest.approx(line["reward"])
    assert start["validation/full_marks_share"] <= start["validation/pass_at_1"]
    (drawn,) = block(text, "curves")
    assert drawn["x"]["iterations"] == [0, 1]
    assert drawn["y"]["validation/pass_at_1"][0] == pytest.approx(start["validation/pass_at_1"])


def test_a_report_that_fails_does_not_end_the_run(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(page, "render", lambda *_: 1 / 0)
    runs.train(*runs.flags(out, iterations=1, sft__epochs=1, evaluation__every=1))
    assert "report.html was not written (ZeroDivisionError" in capsys.readouterr().err
    assert (out / "summary.json").exists()
    assert not (out / page.FILE).exists()
    monkeypatch.undo()
    assert command.main([str(out)]) == 0
    assert (out / page.FILE).exists()
