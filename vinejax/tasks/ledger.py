"""A small self-generating task: left-to-right arithmetic modulo 10, shown by a sloppy bookkeeper.

    prompt    9-7-1*9:⏎
    response  9-7=2⏎2-1=1⏎1*9=9⏎#### 219

Every step is one fact (`9-7=2`), and the answer lists all running values, so that a wrong fact can
never end in the right answer by luck. Some facts are *sloppy*: demonstrations state them wrongly
part of the time, always in the same way. A policy that imitates them learns right and wrong side by
side, and reinforcement learning can tell which step lost the reward. Multiplication is by 3, 7 or 9
only: those are one-to-one modulo 10, so that an error is never cancelled later.

With `resets`, some operations are `*0`, and the answer lists the running values behind the last of
them: what stands before it is irrelevant, a mistake there one that a success got away with.

Problems of all splits are different; what is measured is whether facts get repaired, in
compositions that were not seen. Everything follows from `seed` (numpy `default_rng`).
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from vinejax.config import ConfigError
from vinejax.tasks.base import Problem, Task
from vinejax.tokenizer import FastTokenizer, SpecialTokens, Tokenizer

OPERANDS = {"+": tuple(range(10)), "-": tuple(range(10)), "*": (3, 7, 9)}
SPLITS = ("test", "validation", "train", "sft")
RESET = "*0"
MARK = "#### "
END_OF_PROMPT = ":\n"
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
TOKENS = (PAD, BOS, EOS, "\n", MARK, END_OF_PROMPT, *"0123456789", *"+-*=")

Fact = tuple[str, int, int]


class Ledger(Task):
    """`length` facts a problem.

    seed: of the facts that are sloppy, of all problems and of the errors in demonstrations.
    sloppy: share of the facts that are sloppy. wrong: how often a demonstration states such a fact
    wrongly. operators: some of "+-*". resets: probability that an operation other than the
    last is `*0`, which is never sloppy. *_size: number of problems in each split; "sft" holds the
    demonstrations, the solutions of the other splits are right.
    """

    name = "ledger"
    sft_split = "sft"

    def __init__(
        self,
        seed: int = 1000,
        length: int = 8,
        sloppy: float = 0.4,
        wrong: float = 0.5,
        operators: str = "+-*",
        resets: float = 0.0,
        sft_size: int = 4000,
        train_size: int = 2000,
        validation_size: int = 128,
        test_size: int = 256,
    ):
        self.seed, self.length, self.operators = seed, length, operators
        self.sloppy, self.wrong, self.resets = sloppy, wrong, resets
        sizes = (test_size, validation_size, train_size, sft_size)
        self.sizes = dict(zip(SPLITS, sizes, strict=True))
        self._check()
        # One token a character, but for the marks, which are one each.
        self.longest_prompt = 1 + (1 + 2 * length) + 1
        self.longest_response = 6 * length + 1 + length + 1

    def _check(self) -> None:
        if self.length < 1:
            raise ConfigError(f"task ledger: length={self.length} must be at least 1")
        if not self.operators or len(set(self.operators)) != len(self.operators):
            raise ConfigError(f"task ledger: operators={self.operators!r} must name each once")
        if not set(self.operators) <= set(OPERANDS):
            raise ConfigError(f"task ledger: operators={self.operators!r} must be some of '+-*'")
        for field, value in (("sloppy", self.sloppy), ("wrong", self.wrong)):
            if not 0 <= value <= 1:
                raise ConfigError(f"task ledger: {field}={value} must lie in [0, 1]")
        if not 0 <= self.resets < 1:
            raise ConfigError(f"task ledger: resets={self.resets} must be at least 0 and below 1")
        if min(self.sizes.values()) < 0:
            raise ConfigError(f"task ledger: sizes {self.sizes} must not be negative")
        exist = 10 * sum(len(OPERANDS[op]) for op in self.operators) ** self.length
        wanted = sum(self.sizes.values())
        # Beyond half of them, drawing problems that are new takes ever longer.
        if 2 * wanted > exist:
            raise ConfigError(
                f"task ledger: the splits ask for {wanted} different problems, but only {exist} of "
                f"length={self.length} exist; use at most half of them, or a greater length"
            )

    @cached_property
    def false_results(self) -> dict[Fact, int]:
        """The wrong result of each sloppy fact."""
        facts = [(op, a, b) for op in self.operators for a in range(10) for b in OPERANDS[op]]
        rng = np.random.default_rng([self.seed, 0])
        chosen = rng.permutation(len(facts))[: round(self.sloppy * len(facts))]
        return {
            facts[index]: (_apply(*facts[index]) + int(shift)) % 10
            for index, shift in zip(chosen, rng.integers(1, 10, len(chosen)), strict=True)
        }

    def load(self, split: str) -> Sequence[Problem]:
        """Problems of "train", "validation", "test" or "sft" (the demonstrations)."""
        if split not in SPLITS:
            raise ConfigError(f"task ledger has no split {split!r}; valid: {', '.join(SPLITS)}")
        rng = np.random.default_rng([self.seed, 2])
        problems = []
        for index, text in enumerate(self._texts[split]):
            right = _steps(text, lambda fact: _apply(*fact))
            shown = _steps(text, lambda fact: self._state(fact, rng)) if split == "sft" else right
            problems.append(
                Problem(
                    id=f"{split}/{index}",
                    problem=text,
                    solution=_solution(shown),
                    answer=_answer(right),
                )
            )
        return problems

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """All problems, each in one split only. The test set is drawn first, so that it does not
        depend on the sizes of the pools."""
        rng = np.random.default_rng([self.seed, 1])
        seen: set[str] = set()
        texts: dict[str, list[str]] = {}
        for split in SPLITS:
            texts[split] = []
            while len(texts[split]) < self.sizes[split]:
                text = self._draw(rng)
                if text not in seen:
                    seen.add(text)
                    texts[split].append(text)
        return texts

    def _draw(self, rng: np.random.Generator) -> str:
        text = str(rng.integers(10))
        for step in range(self.length):
            if self.resets and step < self.length - 1 and rng.random() < self.resets:
                text += RESET
                continue
            op = self.operators[rng.integers(len(self.operators))]
            text += f"{op}{OPERANDS[op][rng.integers(len(OPERANDS[op]))]}"
        return text

    def _state(self, fact: Fact, rng: np.random.Generator) -> int:
        """The result that the bookkeeper writes down."""
        if fact in self.false_results and rng.random() < self.wrong:
            return self.false_results[fact]
        return _apply(*fact)

    def prompt(self, problem: Problem) -> str:
        return problem.problem + END_OF_PROMPT

    def extract_answer(self, response: str) -> str | None:
        """All text behind the first `#### `."""
        _, mark, answer = response.partition(MARK)
        return answer if mark else None

    def tokenizer(self) -> Tokenizer:
        """One token a character; `#### ` and the end of the prompt are one each."""
        # "<unk>" is not in the vocabulary: a character that has no token is an error.
        model = models.WordLevel({token: index for index, token in enumerate(TOKENS)}, "<unk>")
        backend = Backend(model)
        backend.pre_tokenizer = pre_tokenizers.Split(
            Regex(f"{MARK}|{END_OF_PROMPT}|[\\s\\S]"), "isolated"
        )
        backend.decoder = decoders.Fuse()
        backend.add_special_tokens([PAD, BOS, EOS])
        return FastTokenizer(backend, SpecialTokens(bos=BOS, eos=EOS, pad=PAD))


def _apply(op: str, a: int, b: int) -> int:
    return (a + b if op == "+" else a - b if op == "-" else a * b) % 10


def _steps(text: str, result_of: Callable[[Fact], int]) -> list[tuple[Fact, int]]:
    """The facts of a problem from left to right, each with its result, carried on."""
    steps, value = [], int(text[0])
    for at in range(1, len(text), 2):
        fact = (text[at], value, int(text[at + 1]))
        value = result_of(fact)
        steps.append((fact, value))
    return steps


def _answer(steps: list[tuple[Fact, int]]) -> str:
    """The running values, from the last reset on."""
    values = ""
    for (op, _, b), value in steps:
        values = "" if f"{op}{b}" == RESET else f"{values}{value}"
    return values


def _solution(steps: list[tuple[Fact, int]]) -> str:
    lines = [f"{a}{op}{b}={value}\n" for (op, a, b), value in steps]
    return "".join(lines) + MARK + _answer(steps)
