"""Small tokenizers of the kinds that matter, trained on invented text in a second."""

import functools
import io
import random

import sentencepiece
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from vinejax.tokenizer import FastTokenizer, SentencePieceTokenizer, SpecialTokens, Tokenizer

NAMES = ("Tom", "Ada", "Zoë", "Jürgen", "Mei")
THINGS = ("cats", "red pens", "litres of tea", "½ cakes", "trains")
TRICKY = (
    "",
    " ",
    "   ",
    "\n",
    "\n\n\nProblem:",
    "a  b   c",
    " leading and trailing ",
    "x=3*(4+5)\n#### 27\n",
    "naïve café, 北京, 🙂🙃",
    "\ttabs\tand\r\nlines",
    "He said: </s> <s> <|end|> and went on.",
    "Tom has 3 red pens.\n\n\nProblem:\nAda",
)


@functools.cache
def lines() -> tuple[str, ...]:
    """A few hundred lines of invented word problems."""
    draw = random.Random(0)
    return tuple(
        f"{draw.choice(NAMES)} has {draw.randint(1, 500)} {draw.choice(THINGS)} and gives "
        f"{draw.randint(1, 99)} away. How many are left?\n{draw.randint(1, 99)}-"
        f"{draw.randint(1, 9)}={draw.randint(1, 99)}.\n\n\nProblem:\nNext."
        f"\n#### {draw.randint(1, 99)}"
        for _ in range(300)
    )


@functools.cache
def byte_level() -> Tokenizer:
    """GPT-2's kind: byte-level BPE, bos and eos, no pad. Newlines merge with a full stop."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("Problem", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=8,
        show_progress=False,
    )
    backend.train_from_iterator(lines(), trainer)
    return FastTokenizer(backend, SpecialTokens(bos="<|start|>", eos="<|end|>"))


@functools.cache
def llama_model() -> bytes:
    """A SentencePiece model with Llama 2's settings."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([part for line in lines() for part in line.split("\n")]),
        model_writer=model,
        model_type="bpe",
        vocab_size=450,
        byte_fallback=True,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def llama_pieces() -> SentencePieceTokenizer:
    """Llama 2's kind, through sentencepiece."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=llama_model())
    return SentencePieceTokenizer(processor, SpecialTokens(bos="<s>", eos="</s>", unk="<unk>"))


@functools.cache
def llama_fast() -> Tokenizer:
    """The same vocabulary, through tokenizers."""
    return llama_pieces().to_fast()


SMALL = {"byte_level": byte_level, "llama_pieces": llama_pieces, "llama_fast": llama_fast}
