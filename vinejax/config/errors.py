"""What goes wrong between a user and a run, and how it is said."""

import difflib
from collections.abc import Collection


class UserError(Exception):
    """The run cannot start or go on, for a reason that the message names with its remedy."""


class ConfigError(UserError, ValueError):
    """A configuration field that is unknown, of the wrong type, or at odds with another one."""


class RunError(UserError):
    """A run that had begun cannot go on; what it has saved stays."""


class StorageError(Exception):
    """The disk refused what a run had to write; what the run has saved stays.

    No UserError: where several processes are one run, the others do not know of it.
    """


class Preempted(Exception):
    """The machine asked the run to stop; it has saved a checkpoint and can be resumed."""


def nearest(name: str, known: Collection[str]) -> str:
    """A clause for an error message: the closest known names, or all of them."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return (
        f"did you mean {' or '.join(close)}?"
        if close
        else f"choose from {', '.join(sorted(known))}"
    )
