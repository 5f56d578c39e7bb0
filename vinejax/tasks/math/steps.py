r"""Reasoning steps of a MATH response, in two rules.

`authors` is what the numbers of the paper (arXiv 2410.01679) were made with: a reimplementation of
`src/treetune/tasks/math_extract_steps_inplace.py` in the authors' repository, commit efe7228,
that gives the same boundaries, oddities included. Contrary to the paper's text it cuts formulas:
displays at their line breaks (stage 4), long ones behind `=` and `+` (stage 5).

`paper` keeps what the paper says: the same stages, without those that cut formulas.

Boundaries are character positions [0, ..., len(response)], strictly increasing.
"""

import itertools
import re
from collections.abc import Callable, Iterable

from vinejax.tasks.math.formulas import NESTING, Masked, Span, mask, mask_broken_off

SHORT_LINE = 20  # masked characters
SHORT_SENTENCE = 20
SHORT_FORMULA_LINE = 3
LONG = 100
LANGUAGE_SIDE = 40
MATHS_SIDE = 20

_FULL_STOPS = (".$", ".$$", r".\)", r".\]")
# Not behind an initial (`U.S. Dollars`), `Dr. X`, and so not behind `of it. Then` either.
_SENTENCE_END = re.compile(r"(?<=\.)(?<!\b[A-Za-z]\.)(?<!\s[A-Za-z]{2}\.)(?=\s+[A-Z])")
_ONLY_OPENING = re.compile(r"\$\$?|\\\(|\\\[|\\begin\{[^}]*\}|\[asy\]")
# With the length up to the cut. In "and and" only the first is found: it takes the blank along.
_LANGUAGE = tuple(
    (re.compile(separator), length)
    for separator, length in ((",", 1), (r"\sand\s", 4), (":", 1), (r"\sto\s", 3))
)
_MATHS = tuple(
    re.compile(re.escape(separator))
    for separator in (",$", r",\)", r",\]", "=", r"\equiv", "+", r"\cancelto")
)


class SplitterFailure(Exception):
    """The authors' function raises on this response, and they lose the trajectory."""


def authors(response: str) -> list[int]:
    """Boundaries as the authors' function returns them; SplitterFailure where it raises."""
    if not response:
        return [0]
    masked = mask(response)
    if masked.nested:
        raise SplitterFailure(NESTING)
    bounds = _sentences(response, masked)
    bounds = _formula_lines(response, masked, bounds)
    steps = [0]
    for begin, end in itertools.pairwise(bounds):
        steps += [begin + cut for cut in _cut_long(response[begin:end])]
    return steps


def paper(response: str) -> list[int]:
    """Boundaries none of which lies inside a formula."""
    if not response:
        return [0]
    masked = mask_broken_off(response)
    try:
        bounds = _sentences(response, masked)
    except SplitterFailure:  # too short to cut
        return [0, len(response)]
    steps = [0]
    for begin, end in itertools.pairwise(bounds):
        steps += _language_cuts(masked, begin, end)
    return steps


def _sentences(response: str, masked: Masked) -> list[int]:
    """Stages 2 and 3: sentences and lines, and sentences that end inside a formula."""
    text, end = masked.text, len(response)
    cuts = {match.start() for match in _SENTENCE_END.finditer(text)}
    cuts |= {match.start() for match in re.finditer("\n", text)}

    def is_short_line(begin: int, end: int) -> bool:
        return text[end - 1] != "." and masked.width(begin, end) < SHORT_LINE

    bounds = _merge_forwards(cuts, end, is_short_line)
    stops = {stop for begin, stop in masked.spans if response.endswith(_FULL_STOPS, begin, stop)}

    def is_short_sentence(begin: int, end: int) -> bool:
        return end - begin < SHORT_SENTENCE and not response.endswith(_FULL_STOPS, begin, end)

    bounds = _merge_forwards(stops.union(bounds), end, is_short_sentence)
    return _merge_last(bounds, is_short_sentence)


def _formula_lines(response: str, masked: Masked, bounds: list[int]) -> list[int]:
    """Stage 4: the lines of a formula. Of equal formulas in one piece, only the first is cut."""
    cuts = set(bounds)
    seen: set[str] = set()
    inner = iter(bounds[1:])
    piece_end = next(inner)
    for begin, end in masked.spans:
        while begin >= piece_end:
            piece_end, seen = next(inner), set()
        formula = response[begin:end]
        if formula not in seen:
            seen.add(formula)
            cuts |= {begin + newline.start() for newline in re.finditer("\n", formula)}

    def is_scrap(begin: int, end: int) -> bool:
        piece = response[begin:end]
        return len(piece) < SHORT_FORMULA_LINE or bool(_ONLY_OPENING.fullmatch(piece.strip()))

    return _merge_last(_merge_forwards(cuts, len(response), is_scrap), is_scrap)


def _merge_forwards(
    cuts: Iterable[int], end: int, is_short: Callable[[int, int], bool]
) -> list[int]:
    """0, the cuts and `end`, without cuts behind short pieces; what grows is looked at again."""
    bounds = [0]
    for cut in sorted(cuts):
        if bounds[-1] < cut < end and not is_short(bounds[-1], cut):
            bounds.append(cut)
    return [*bounds, end]


def _merge_last(bounds: list[int], is_short: Callable[[int, int], bool]) -> list[int]:
    """A short last piece joins the one before; if it is the only one, the authors' code fails."""
    if not is_short(bounds[-2], bounds[-1]):
        return bounds
    if len(bounds) == 2:
        raise SplitterFailure("the response is too short")
    return [*bounds[:-2], bounds[-1]]


def _cut_long(piece: str) -> list[int]:
    """Stage 5: ends of the parts that one piece is cut into, in order."""
    ends: list[int] = []
    maths: Span | None = None
    waiting = [(0, len(piece))]
    while waiting:
        begin, end = waiting.pop()
        part = piece[begin:end]
        cut = None
        if len(part) > LONG:
            if maths is None or not maths[0] <= begin < maths[1]:
                cut = _language_cut(part)
            if cut is None and (cut := _maths_cut(part)) is not None:
                # The authors' slip: places within the part, compared with places in the piece.
                low, high = maths or (cut, 0)
                maths = min(low, cut), max(high, len(part))
        if cut is None:
            ends.append(end)
        else:
            waiting += [(begin + cut, end), (begin, begin + cut)]
    return ends


def _language_cut(part: str) -> int | None:
    masked = mask(part)
    if masked.nested:
        raise SplitterFailure(NESTING)
    return _language_cut_between(masked, 0, len(part))


def _maths_cut(part: str) -> int | None:
    for separator in _MATHS:
        cut = _middle(
            (match.end() for match in separator.finditer(part)), lambda cut: cut, len(part)
        )
        if cut is not None and MATHS_SIDE <= cut <= len(part) - MATHS_SIDE:
            return cut
    return None


def _language_cut_between(masked: Masked, begin: int, end: int) -> int | None:
    """The place behind a comma, `and`, colon or `to` outside formulas that halves [begin, end)."""
    width = masked.width(begin, end)
    for separator, length in _LANGUAGE:
        found = separator.finditer(masked.text, begin, end)
        places = (match.start() + length for match in found)
        cut = _middle(places, lambda place: masked.width(begin, place), width)
        if cut is not None and begin + LANGUAGE_SIDE <= cut <= end - LANGUAGE_SIDE:
            return cut
    return None


def _middle(places: Iterable[int], width: Callable[[int], int], total: int) -> int | None:
    """Of the places, the one with the most equal widths before and behind it; the first of such."""
    return min(places, key=lambda place: abs(total - 2 * width(place)), default=None)


def _language_cuts(masked: Masked, begin: int, end: int) -> list[int]:
    """Ends of the parts that [begin, end) is cut into by language alone, in order."""
    ends: list[int] = []
    waiting = [(begin, end)]
    while waiting:
        begin, end = waiting.pop()
        cut = _language_cut_between(masked, begin, end) if end - begin > LONG else None
        if cut is None:
            ends.append(end)
        else:
            waiting += [(cut, end), (begin, cut)]
    return ends
