"""Input that a user would bring, made from nothing: a model folder and GSM8K files."""

import json
import random
from pathlib import Path

import jax

from tests.small_tokenizers import NAMES, byte_level
from vinejax import policy


def make_model(folder: Path, rows: int | None = None) -> Path:
    """A random decoder of two layers with a small byte-level tokenizer.

    Its embedding has a few rows more than the tokenizer has ids. With `rows` it has that many, and
    the folder gets no tokenizer.
    """
    tokenizer = byte_level()
    config = policy.LlamaConfig(
        vocab_size=rows or tokenizer.vocab_size + 4,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        ffn=64,
        tied=True,
        max_positions=512,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    params = policy.init(config, jax.random.key(7))
    policy.save_hf(folder, config, params, None if rows else tokenizer)
    return folder


def make_data(folder: Path, train: int = 40, test: int = 6) -> Path:
    """gsm8k_train.jsonl and gsm8k_test.jsonl with invented problems of the published form."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    for part, size in (("train", train), ("test", test)):
        lines = [json.dumps(problem(draw)) + "\n" for _ in range(size)]
        (folder / f"gsm8k_{part}.jsonl").write_text("".join(lines))
    return folder


def problem(draw: random.Random) -> dict[str, str]:
    have, more = draw.randint(1, 50), draw.randint(1, 50)
    total = have + more
    return {
        "question": f"{draw.choice(NAMES)} has {have} pens and gets {more}. How many are there?",
        "answer": f"There are {have}+{more}=<<{have}+{more}={total}>>{total} pens.\n#### {total}",
    }


def edit_line(path: Path, number: int, text: str) -> None:
    """Replaces a line, counted from 1."""
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")
