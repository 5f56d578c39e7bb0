"""Tokenizers in Hugging Face's `tokenizer.json` format, read by the `tokenizers` library."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from vinejax.config import UserError
from vinejax.tokenizer.base import Tokenizer
from vinejax.tokenizer.special import SpecialTokens, read_json, read_special

SPACE = "\u2581"  # SentencePiece writes a space so


class FastTokenizer(Tokenizer):
    """A `tokenizers.Tokenizer` whose tokens are byte-level, SentencePiece-like or plain text.

    backend: the library's object; special: names of the special tokens, each in the vocabulary;
    settings: further fields of `tokenizer_config.json`, kept when saving (a chat template, ...).
    """

    def __init__(
        self,
        backend: Backend,
        special: SpecialTokens,
        adds_bos: bool = False,
        settings: Mapping[str, Any] | None = None,
    ):
        self._backend = backend
        self._backend.encode_special_tokens = True
        self._backend.no_truncation()
        self._backend.no_padding()
        self._special = special
        self._settings = dict(settings or {})
        self._vocab = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._vocab.values()) + 1
        self.eos_id = self._id(special.eos)
        self.bos_id = self._id(special.bos) if special.bos else None
        self.pad_id = self._id(special.pad) if special.pad else 0
        self._spec = json.loads(backend.to_str())
        self._scheme = _scheme(self._spec)
        self.adds_bos = adds_bos
        self.dummy_space = self._starts_with_space("a")

    def _id(self, name: str) -> int:
        if name not in self._vocab:
            raise UserError(f"special token {name!r} is not in the tokenizer's vocabulary")
        return self._vocab[name]

    def _starts_with_space(self, text: str) -> bool:
        try:
            ids = self._encode(text)
        except UserError:  # a vocabulary without this letter puts no space before it
            return False
        return self.decode(ids) == " " + text

    def _encode(self, text: str) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises bare Exception
            raise UserError(f"the tokenizer cannot encode {text[:40]!r}: {error}") from error

    def _byte_table(self) -> list[bytes]:
        added = self._backend.get_added_tokens_decoder()
        special = set(self._special.fields().values())
        table = [b""] * self.vocab_size
        for token, number in self._vocab.items():
            if token in special:
                continue
            if number in added:
                table[number] = b"" if added[number].special else token.encode()
            else:
                table[number] = _SCHEMES[self._scheme](token)
        return table

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._backend.save(str(folder / "tokenizer.json"))
        config = {"clean_up_tokenization_spaces": False, "model_max_length": 10**9}
        config |= self._settings | self._special.fields()
        # A model-specific class would rebuild the rules from the vocabulary (transformers 5 does
        # so for Llama, and then runs of spaces differ); this one takes the file as it is.
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer_config.json").write_text(
            json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def byte_tokenizer() -> FastTokenizer:
    """A token a byte of UTF-8, behind "<bos>" and "<eos>": 258 ids, for models from scratch."""
    names = ("<bos>", "<eos>")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({name: i for i, name in enumerate([*names, *alphabet])}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(names))
    return FastTokenizer(backend, SpecialTokens(bos=names[0], eos=names[1]))


def load_fast(folder: Path) -> FastTokenizer:
    """The tokenizer of `folder/tokenizer.json`; UserError if unreadable or unsupported."""
    path = folder / "tokenizer.json"
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{path} cannot be read ({error}); fetch the file again") from error
    special = read_special(folder, backend.id_to_token)
    settings = read_json(folder / "tokenizer_config.json")
    adds_bos = settings.get("add_bos_token") is True
    if special.bos and not adds_bos and "add_bos_token" not in settings:
        ids = backend.encode("", add_special_tokens=True).ids
        adds_bos = ids[:1] == [backend.token_to_id(special.bos)]
    # Names of code that a remote repository wants run, and files that are not written here.
    for field in ("auto_map", "tokenizer_file", "name_or_path"):
        settings.pop(field, None)
    return FastTokenizer(backend, special, adds_bos, settings)


def _scheme(spec: dict) -> str:
    """How tokens spell their bytes: "bytes" (GPT-2), "pieces" (SentencePiece) or "text"."""
    kinds = {part["type"] for part in _parts(spec.get("decoder"), "decoders")}
    kinds |= {part["type"] for part in _parts(spec.get("pre_tokenizer"), "pretokenizers")}
    if "ByteLevel" in kinds:
        return "bytes"
    if kinds & {"ByteFallback", "Metaspace"} or spec["model"].get("byte_fallback"):
        return "pieces"
    if spec["model"].get("type") == "WordLevel" and "Fuse" in kinds:
        return "text"
    raise UserError(
        f"tokenizer model {spec['model'].get('type')!r} is not supported: its tokens don't spell "
        "their exact text; use a byte-level BPE or a SentencePiece-like BPE"
    )


def _parts(spec: dict | None, plural: str) -> list[dict]:
    if spec is None:
        return []
    return spec[plural] if spec["type"] == "Sequence" else [spec]


def _gpt2_bytes() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, inverted: printable Latin-1 bytes stand for
    themselves, the others for the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(printable)]
    table = {chr(value): value for value in printable}
    return table | {chr(0x100 + index): value for index, value in enumerate(others)}


_BYTE_OF = _gpt2_bytes()


def _from_byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:  # a token that was put into the vocabulary as text
        return token.encode()


def piece_bytes(token: str) -> bytes:
    """Bytes of a SentencePiece-like token: "\u2581" is a space, "<0x0A>" one byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace(SPACE, " ").encode()


_SCHEMES = {"bytes": _from_byte_level, "pieces": piece_bytes, "text": str.encode}
