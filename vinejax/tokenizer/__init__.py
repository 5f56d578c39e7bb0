"""Tokenizers: text in, token ids out, and the exact text and character offsets of any ids.

In: a folder or hub id with `tokenizer.json` (read by `tokenizers`) or `tokenizer.model` (read by
`sentencepiece`). Out: a `Tokenizer`. Nothing here knows of prompts, steps or stop strings, and
nothing imports JAX: grading workers may read this.
"""

from vinejax.tokenizer.base import Tokenizer
from vinejax.tokenizer.fast import FastTokenizer, byte_tokenizer
from vinejax.tokenizer.load import load_tokenizer
from vinejax.tokenizer.pieces import SentencePieceTokenizer
from vinejax.tokenizer.special import SpecialTokens

__all__ = [
    "FastTokenizer",
    "SentencePieceTokenizer",
    "SpecialTokens",
    "Tokenizer",
    "byte_tokenizer",
    "load_tokenizer",
]
