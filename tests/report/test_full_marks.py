"""Where a task gives a part of the marks, nobody takes pass@1 for the share that is right."""

import io
import re

from experiments.evaluate import lines
from tests.report.folders import SUMMARY, write_run
from tests.report.test_page import render, shown_text
from vinejax import report
from vinejax.report.summary import full_marks

FULL = {"sft_full_marks_share": 0.25, "final_full_marks_share": 0.4}  # SFT: none got a part
PARTIAL = SUMMARY | FULL


def test_full_marks_are_told_where_they_are_another_number():
    assert full_marks(PARTIAL, "final_") == 0.4
    assert full_marks(PARTIAL, "sft_") is None
    assert full_marks(PARTIAL, "best_") is None  # of a run that did not write it down
    mean = sum([1 / 3, 1.0]) / 2
    assert full_marks({"pass_at_1": mean, "full_marks_share": mean - 1e-16}) is None


def table(summary: dict) -> str:
    stream = io.StringIO()
    report.print_summary(summary, stream)
    return re.sub(" +", " ", stream.getvalue())


def test_the_table_at_the_end_of_a_run():
    text = table(PARTIAL)
    assert "pass@1 after SFT 25.0 % (20.0 to 30.0)" in text
    assert "pass@1 (mean grade) at the end 50.0 % (45.0 to 55.0)" in text
    assert "of them full marks 40.0 %" in text
    assert "full marks" not in table(SUMMARY)


def test_the_result_of_an_evaluation():
    found = {"pass_at_1": 0.5, "pass_at_1_low": 0.4, "pass_at_1_high": 0.6}
    assert any(
        row.split() == ["full_marks_share", "40.0", "%"]
        for row in lines(found | {"full_marks_share": 0.4})
    )
    assert not any("full_marks" in row for row in lines(found | {"full_marks_share": 0.5}))


def test_the_page_of_a_run_and_of_several(tmp_path):
    partial = write_run(tmp_path / "a", {}, summary=PARTIAL)
    whole = write_run(tmp_path / "b", {}, seed=1, summary=SUMMARY | {"final_full_marks_share": 0.5})
    words = re.sub(r"\s+", " ", shown_text(render(partial)))
    assert "the mean grade of a sampled answer, where some have a part of the marks" in words
    assert "50.0 % 45.0 to 55.0 · full marks: 40.0 %" in words
    assert "full marks share 25.0 % 40.0 % -" in words  # of all numbers
    words = re.sub(r"\s+", " ", shown_text(render(whole)))
    assert "which is the share that is right where grades are 0 or 1" in words
    assert "full marks" not in words
    words = re.sub(r"\s+", " ", shown_text(render(partial, whole)))
    assert words.split("All numbers")[0].count("full marks: 40.0 %") == 1
