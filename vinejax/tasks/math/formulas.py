"""Where the formulas of a text are, by the rules of VinePPO's authors (`mask` in their
`src/treetune/tasks/math_extract_steps_inplace.py`, commit efe7228), in time linear in the text.

The authors replace every formula by a mask of 60 characters and go on with the shorter text. Here
a formula is blanked, at its full length, so that positions never move; `Masked.width` gives the
lengths that the authors would have seen.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

MASK_WIDTH = 60
BLANK = "\ufffc"  # neither white space nor letter; harmless if the text has one of its own
NESTING = "a formula holds another one"

Span = tuple[int, int]

_PAIRS = (
    ("[asy]", "[/asy]"),
    (r"$\begin{tabular}", r"\end{tabular}$"),
    (r"\begin{tabular}", r"\end{tabular}"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("$$", "$$"),
)
_OPENING_DOLLAR = re.compile(r"(?<!\\)\$")
_CLOSING_DOLLAR = re.compile(r"(?<!\\)\$(?!\$)")
_BEGIN = r"\begin{"
# What may open a formula that the text breaks off; `\\[2pt]` is a line break with a distance.
_BROKEN_OFF = re.compile(r"\[asy\]|(?<!\\)\\[(\[]|(?<!\\)\$\$|\\begin\{")


@dataclass(frozen=True)
class Masked:
    """text: as long as the original, each formula blanked. spans: the formulas, in order, apart
    from each other. nested: whether one of them holds what an earlier rule had masked."""

    text: str
    spans: tuple[Span, ...]
    nested: bool

    def width(self, begin: int, end: int) -> int:
        """Characters of [begin, end) with each formula counted as 60; no end lies inside one."""
        return end - begin - self._excess(end) + self._excess(begin)

    def _excess(self, position: int) -> int:
        return self._excesses[bisect_right(self._ends, position)]

    @cached_property
    def _ends(self) -> list[int]:
        return [end for _, end in self.spans]

    @cached_property
    def _excesses(self) -> list[int]:
        lengths = (end - begin - MASK_WIDTH for begin, end in self.spans)
        return list(itertools.accumulate(lengths, initial=0))


def mask(text: str) -> Masked:
    """Formulas by the authors' eight rules, each applied to what the earlier ones left."""
    masked = Masked(text, (), False)
    for opening, closing in _PAIRS:
        masked = _blank(masked, _pairs(masked.text, opening, closing))
    masked = _blank(masked, _inline(masked.text))
    return _blank(masked, _environments(masked.text))


def mask_broken_off(text: str) -> Masked:
    """As `mask`, and a formula that is opened and never closed reaches to the end of the text; one
    in single dollars, which may be a currency sign, to the end of its line."""
    masked = mask(text)
    opening = _BROKEN_OFF.search(masked.text)
    if opening:
        masked = _blank(masked, [(opening.start(), len(text))])
    dollar = _OPENING_DOLLAR.search(masked.text)
    if dollar:
        line_end = masked.text.find("\n", dollar.start())
        masked = _blank(masked, [(dollar.start(), line_end if line_end >= 0 else len(text))])
    return masked


def _blank(masked: Masked, found: Iterable[Span]) -> Masked:
    """`masked` with more formulas; those inside a new one are given up for it."""
    found = list(found)
    if not found:
        return masked
    parts, position = [], 0
    for begin, end in found:
        parts += masked.text[position:begin], BLANK * (end - begin)
        position = end
    ends = [end for _, end in found]
    outside = []
    for span in masked.spans:
        index = bisect_right(ends, span[0])
        if index == len(found) or span[1] <= found[index][0]:
            outside.append(span)
    return Masked(
        text="".join(parts) + masked.text[position:],
        spans=tuple(sorted([*outside, *found])),
        nested=masked.nested or len(outside) < len(masked.spans),
    )


def _pairs(text: str, opening: str, closing: str) -> Iterator[Span]:
    """From each opening to the next closing. Without one behind it, no later opening has one."""
    position = 0
    while (begin := text.find(opening, position)) >= 0:
        end = text.find(closing, begin + len(opening))
        if end < 0:
            return
        position = end + len(closing)
        yield begin, position


def _inline(text: str) -> Iterator[Span]:
    """`$...$` with something between; what is between may hold dollars that cannot close it."""
    closings = _CLOSING_DOLLAR.finditer(text)
    position = 0
    for opening in _OPENING_DOLLAR.finditer(text):
        begin = opening.start()
        if begin < position:
            continue
        end = next((c.start() for c in closings if c.start() >= begin + 2), None)
        if end is None:
            return
        position = end + 1
        yield begin, position


def _environments(text: str) -> Iterator[Span]:
    r"""From each `\begin{NAME}` to the next `\end{NAME}`."""
    unclosed: set[str] = set()
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        position = begin + len(_BEGIN)
        brace = text.find("}", position)
        if brace < 0:
            return
        name = text[position:brace]
        closing = rf"\end{{{name}}}"
        end = -1 if name in unclosed else text.find(closing, brace + 1)
        if end < 0:
            unclosed.add(name)
            continue
        position = end + len(closing)
        yield begin, position
