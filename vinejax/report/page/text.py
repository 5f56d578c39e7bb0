"""Text that a model wrote, made safe to look at: what has no glyph or reorders others is spelled.

The page shows texts as text, never as markup, so this is not what keeps it safe: it is what keeps
it honest. A right-to-left override would show other digits than the grader saw, a NUL nothing.
"""

import re

# Control characters but tab and newline, those that reorder or join or have no width, line and
# paragraph separators, the byte order mark, halves of surrogate pairs, and non-characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """`text` with every hidden character spelled, such as NUL as ⟨U+0000⟩.

    Letters, emoji, combining marks and right-to-left scripts stay what they are.
    """
    return _HIDDEN.sub(_spelled, text)


def shortened(text: str, length: int) -> str:
    """At most `length` characters of a text and, where something was left out, how much."""
    left_out = len(text) - length
    return text if left_out <= 0 else f"{text[:length]}… ({left_out:,} characters left out)"


def _spelled(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"
