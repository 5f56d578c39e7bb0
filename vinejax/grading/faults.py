"""How many answers have no grade of the grader's, since it failed on them, and why."""

from collections.abc import Iterable
from typing import NamedTuple


class Verdict(NamedTuple):
    """grade in [0, 1]; note: "" or why there is none ("timeout", "crash", "error: ...")."""

    grade: float
    note: str = ""


class Faults(NamedTuple):
    """Of some graded answers; equal answers count each."""

    answers: int = 0
    failed: int = 0  # the grader raised, took too long, or its process died
    first: str = ""  # the note of the first of them, on one line

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> "Faults":
        """Those of verdicts in order."""
        notes = [verdict.note for verdict in verdicts]
        failed = [note for note in notes if note]
        return cls(len(notes), len(failed), " ".join(failed[0].split()) if failed else "")

    @classmethod
    def total(cls, parts: "Iterable[Faults]") -> "Faults":
        """Those of all parts together."""
        parts = list(parts)
        first = next((part.first for part in parts if part.failed), "")
        return cls(sum(p.answers for p in parts), sum(p.failed for p in parts), first)

    @property
    def share(self) -> float:
        """Of the answers; 0 where there is none."""
        return self.failed / self.answers if self.answers else 0.0
