"""What every tokenizer offers; all text is derived from the exact bytes of each token.

Token ids are the truth and text is a view of them. The view is defined by bytes: the text of ids
is their bytes, joined and decoded as UTF-8. It is therefore exact for any slice of a sequence, also
for one that starts inside a word or a character, which the libraries' own `decode` is not: Llama's
drops the space in front of a slice, as it cannot tell a slice from the start of a sequence.
"""

import abc
import codecs
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from vinejax.config import UserError


class Tokenizer(abc.ABC):
    """Maps text to ids and back.

    vocab_size: every id lies in [0, vocab_size); a model's embedding may have more rows.
    bos_id: None if the tokenizer has no such token.
    eos_id: ends a response.
    pad_id: the declared padding token, else 0. It is only ever a filler: it may equal `eos_id`
        (some tokenizers declare it so), hence masks come from lengths and never from ids.
    adds_bos: whether the model's own tokenizer starts every sequence with `bos_id`.
    dummy_space: whether `encode` puts a space before the text (SentencePiece's "dummy prefix").
    """

    vocab_size: int
    bos_id: int | None
    eos_id: int
    pad_id: int
    adds_bos: bool
    dummy_space: bool

    @abc.abstractmethod
    def _encode(self, text: str) -> list[int]:
        """Ids of `text` without special tokens."""

    @abc.abstractmethod
    def _byte_table(self) -> list[bytes]:
        """The bytes of each id in [0, vocab_size); b"" for special tokens."""

    @abc.abstractmethod
    def save(self, folder: str | Path) -> None:
        """Writes files from which `transformers.AutoTokenizer` makes the same ids."""

    @cached_property
    def bytes_of_ids(self) -> list[bytes]:
        """The bytes of every id, indexed by id; special tokens and unused ids have none (b"")."""
        return self._byte_table()

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to a text, a leading space included; b"" if it is special."""
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"token id {token} is outside [0, {self.vocab_size})")
        return self.bytes_of_ids[token]

    def encode(self, text: str, bos: bool = False) -> list[int]:
        """Ids of `text` as the start of a sequence.

        Names of special tokens inside `text` are plain text: a problem cannot smuggle in an end of
        sequence. `bos` puts `bos_id` in front, once, if the tokenizer has one.
        """
        ids = self._encode(text)
        return [self.bos_id, *ids] if bos and self.bos_id is not None else ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Ids of `text` (no bos) and the start character in `text` of each.

        They come from the tokens' bytes: the libraries' own offsets may leave out the leading space
        of a token. Raises UserError for a tokenizer that changes the text (some normalise it).
        """
        ids = self._encode(text)
        if self.decode(ids, start=True) != text:
            raise UserError(f"this tokenizer changes the text {text[:40]!r}; use one that keeps it")
        return ids, self.char_starts(ids, start=True)

    def encode_continuation(self, text: str) -> list[int]:
        """Ids of `text` as it goes on an existing sequence: no bos and no dummy space.

        The dummy space is avoided by encoding the text behind a newline and dropping the newline's
        ids. Raises ValueError if the tokenizer merges that newline with what follows it.
        """
        if not self.dummy_space:
            return self.encode(text)
        anchor = self.encode("\n")
        ids = self.encode("\n" + text)
        rest = ids[len(anchor) :]
        if ids[: len(anchor)] != anchor or self.decode(rest) != text:
            raise ValueError(f"this tokenizer cannot encode {text[:40]!r} as a continuation")
        return rest

    def encode_pair(self, prompt: str, response: str) -> tuple[list[int], list[int]]:
        """Ids of a prompt, exactly as `encode(prompt)` gives them, and of the response behind it.

        The response's ids are those of the joint text where the prompt's end is a token edge, as it
        is for the prompts used here; elsewhere the response is encoded as a continuation, so that a
        policy is trained behind the very ids from which it will sample.
        """
        head = self.encode(prompt)
        joint = self.encode(prompt + response)
        if joint[: len(head)] == head:
            return head, joint[len(head) :]
        return head, self.encode_continuation(response)

    def decode(self, ids: Sequence[int], start: bool = False) -> str:
        """The exact text of `ids`; special tokens are skipped, broken UTF-8 becomes U+FFFD.

        start: the ids begin a sequence, so a dummy space in front is not text. Without it the ids
        are a continuation, and `decode(a, start=True) + decode(b) == decode(a + b, start=True)`
        wherever the cut is not inside a character.
        """
        joined = b"".join(self._pieces(ids))
        return joined[self._dropped(joined, start) :].decode("utf-8", errors="replace")

    def char_starts(self, ids: Sequence[int], start: bool = False) -> list[int]:
        """The index in `decode(ids, start)` of the character in which each id starts.

        An id that starts inside a multi-byte character has that character's index; a special token
        has the index of what follows it (the text's length if it is last).
        """
        pieces = self._pieces(ids)
        joined = b"".join(pieces)
        dropped = self._dropped(joined, start)
        characters = _character_of_byte(joined[dropped:])
        starts, at = [], -dropped
        for piece in pieces:
            starts.append(int(characters[max(at, 0)]))
            at += len(piece)
        return starts

    def _pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each id; tens of thousands of texts an iteration go through here."""
        if len(ids) and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            for token in ids:
                self.token_bytes(token)  # names the one that is outside
        table = self.bytes_of_ids
        return [table[token] for token in ids]

    def _dropped(self, joined: bytes, start: bool) -> int:
        """How many bytes in front are no text: a dummy space."""
        return int(start and self.dummy_space and joined.startswith(b" "))


def _character_of_byte(data: bytes) -> np.ndarray:
    """[len(data) + 1] the index of the decoded character each byte belongs to; the end is last."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _character_of_byte_replacing(data)
    is_lead = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    return np.append(np.cumsum(is_lead) - 1, is_lead.sum())


def _character_of_byte_replacing(data: bytes) -> np.ndarray:
    """As `_character_of_byte`, for bytes that decode to some U+FFFD.

    Fed byte by byte, a decoder either holds a byte back (it begins or goes on the next character)
    or releases the character that the byte ends.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    owner, released = [], 0
    for value in data:
        released += len(decoder.decode(bytes([value])))
        owner.append(released if decoder.getstate()[0] else released - 1)
    released += len(decoder.decode(b"", final=True))
    return np.array([*owner, released])
