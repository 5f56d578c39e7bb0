"""Problems that are in two splits: what is trained on must not be what is tested."""

from collections.abc import Iterable

from vinejax.tasks.base import Problem


def shared(train: Iterable[Problem], held_out: Iterable[Problem]) -> list[Problem]:
    """The held-out problems whose text is also a training problem's, whatever its blanks and case.

    Other wordings of the same problem are not noticed.
    """
    known = {_plain(problem.problem) for problem in train}
    return [problem for problem in held_out if _plain(problem.problem) in known]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
