"""The journal of verdicts: what it keeps, what it forgets, and what a crash leaves in it."""

import pytest

from vinejax.config import UserError
from vinejax.journal import Journal


def test_journal_forgets_old_iterations_but_the_file_keeps_them(tmp_path):
    with Journal.open(tmp_path / "deep" / "verdicts.jsonl") as journal:
        for iteration in range(4):
            journal.append(iteration, "", {"a": (1.0, "")})
        journal.forget(before=2)
        assert [bool(journal.verdicts(i)) for i in range(4)] == [False, False, True, True]
        assert len(journal.path.read_text().splitlines()) == 4


def test_journal_of_one_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text('{"iteration": 1')
    Journal.open(path).close()
    assert path.read_text() == ""


def test_broken_journal_line_is_named(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text('{"iteration": 1, "phase": "", "verdicts": {}}\n{"iteration": 2}\n')
    with pytest.raises(UserError, match=r"verdicts\.jsonl:2"):
        Journal.open(path)


def test_journals_of_other_processes_are_known_and_left_alone(tmp_path):
    own, other = tmp_path / "verdicts.jsonl", tmp_path / "verdicts-1.jsonl"
    with Journal.open(other) as journal:
        journal.append(1, "values", {"a": (1.0, ""), "b": (0.0, "timeout")})
    before = other.read_bytes()
    with Journal.open(own, 1, [own, other]) as journal:
        journal.append(1, "values", {"b": (1.0, ""), "c": (0.5, "")})
        assert journal.verdicts(1) == {"a": (1.0, ""), "b": (0.0, "timeout"), "c": (0.5, "")}
    assert other.read_bytes() == before
    assert '"a"' not in own.read_text()
    assert '"c"' in own.read_text()
