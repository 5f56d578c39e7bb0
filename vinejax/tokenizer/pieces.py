"""Tokenizers in SentencePiece's `tokenizer.model` format, read by the `sentencepiece` library."""

from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

from vinejax.config import UserError
from vinejax.tokenizer.base import Tokenizer
from vinejax.tokenizer.fast import SPACE, FastTokenizer, piece_bytes
from vinejax.tokenizer.special import SpecialTokens, read_special

_PROBES = ("a", "  two  spaces ", "line\n\n\nline", "\ttab", "ﬁ ½ Ä 數 🙂", "x=3*(4+5)", " </s> ")


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model. `special` names its special tokens, each a piece of the model."""

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        special: SpecialTokens,
        adds_bos: bool = True,
    ):
        self._processor = processor
        self._special = special
        self.vocab_size = processor.get_piece_size()
        self.eos_id = self._id(special.eos)
        self.bos_id = self._id(special.bos) if special.bos else None
        self.pad_id = self._id(special.pad) if special.pad else 0
        self.adds_bos = adds_bos and self.bos_id is not None
        self.dummy_space = self.decode(self.encode("a")) == " a"

    def _id(self, name: str) -> int:
        number = self._processor.piece_to_id(name)
        if self._processor.id_to_piece(number) != name:
            raise UserError(f"special token {name!r} is not in the tokenizer's vocabulary")
        return number

    def _encode(self, text: str) -> list[int]:
        return self._processor.encode(text)

    def _byte_table(self) -> list[bytes]:
        processor, special = self._processor, set(self._special.fields().values())
        table = [b""] * self.vocab_size
        for number in range(self.vocab_size):
            piece = processor.id_to_piece(number)
            silent = (
                processor.is_control(number)
                or processor.is_unknown(number)
                or processor.is_unused(number)
                or piece in special
            )
            if processor.is_byte(number) or not silent:
                table[number] = piece_bytes(piece)
        return table

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.model`, and `tokenizer.json` with the same rules.

        transformers 5 reads the second file; converting the first it changes runs of spaces.
        Raises UserError for a model whose rules `tokenizer.json` cannot state (not BPE, or with
        normalisation).
        """
        self.to_fast().save(folder)
        (Path(folder) / "tokenizer.model").write_bytes(self._processor.serialized_model_proto())

    def to_fast(self) -> FastTokenizer:
        """The same tokenizer in the other format; UserError if it would not give the same ids."""
        fast = FastTokenizer(self._to_backend(), self._special, self.adds_bos)
        if any(fast.encode(text) != self.encode(text) for text in _PROBES):
            raise UserError(
                "this SentencePiece model cannot be written as tokenizer.json: only BPE models "
                "without normalisation can; pass a folder that has a tokenizer.json"
            )
        return fast

    def _to_backend(self) -> Backend:
        processor = self._processor
        names = [processor.id_to_piece(number) for number in range(self.vocab_size)]
        vocab = {name: number for number, name in enumerate(names)}
        unknown = names[processor.unk_id()]
        model = models.BPE(
            vocab=vocab,
            merges=_merges(processor, vocab),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=any(processor.is_byte(number) for number in range(self.vocab_size)),
        )
        backend = Backend(model)
        spaces = normalizers.Replace(" ", SPACE)
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), spaces] if self.dummy_space else [spaces]
        )
        strip = [decoders.Strip(" ", 1, 0)] if self.dummy_space else []
        backend.decoder = decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
        )
        controls = [name for name, number in vocab.items() if processor.is_control(number)]
        backend.add_special_tokens(
            [AddedToken(name, special=True, normalized=False) for name in (unknown, *controls)]
        )
        return backend


def load_pieces(path: Path) -> SentencePieceTokenizer:
    """The tokenizer of a `.model` file; UserError if it cannot be read."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.Load(str(path))
    except Exception as error:
        raise UserError(f"{path} cannot be read ({error}); fetch the file again") from error

    def name_of(number: int) -> str | None:
        return processor.id_to_piece(number) if number < processor.get_piece_size() else None

    return SentencePieceTokenizer(processor, read_special(path.parent, name_of))


def _merges(
    processor: sentencepiece.SentencePieceProcessor, vocab: dict[str, int]
) -> list[tuple[str, str]]:
    """BPE merges in order of priority: every split of a piece into two pieces, best score first.

    SentencePiece keeps no merge list: it joins whichever neighbours form the piece of best score.
    """
    ranked = []
    for piece, number in vocab.items():
        if not (processor.is_control(number) or processor.is_unknown(number)):
            for cut in range(1, len(piece)):
                left, right = piece[:cut], piece[cut:]
                if left in vocab and right in vocab:
                    score = processor.get_score(number)
                    ranked.append((-score, vocab[left], vocab[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]
