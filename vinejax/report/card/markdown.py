"""Markdown of text that others wrote: it is shown as it is, and never as markup."""

import re
from collections.abc import Sequence

from vinejax.report.page.text import visible

_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#|!~&$]")


def plain(value: object) -> str:
    """`value` on one line, with everything escaped that Markdown or HTML would read as markup."""
    return _MARKUP.sub(lambda found: "\\" + found[0], " ".join(visible(str(value)).split()))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; numbers stand where the caller puts them."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
