"""A task, a tokenizer and a policy whose continuations can all be listed.

The vocabulary has 5 tokens and a response ends at its fifth at the latest, so the exact value of
every state follows from a table of next-token probabilities (`Exact`), without the sampler.
"""

import itertools
from dataclasses import replace
from functools import cache

import jax
import numpy as np

from tests.models import tiny
from vinejax import policy, sharding
from vinejax.config import (
    Config,
    EngineConfig,
    SamplingConfig,
    TaskConfig,
    UpdateConfig,
    ValuesConfig,
)
from vinejax.grading import GraderPool
from vinejax.tasks import Problem, Task
from vinejax.tokenizer import Tokenizer
from vinejax.train import credit, trajectories
from vinejax.train.clock import Clock
from vinejax.train.setup import Prompted, Setup

BOS, EOS = 0, 1
STOP = "\n\n"
PROMPT_LENGTH = 3  # BOS and two characters
LONGEST = 5  # response tokens of a rollout; a trajectory has 4 at most


class Characters(Tokenizer):
    """One token a character."""

    vocab_size, bos_id, eos_id, pad_id = 5, BOS, EOS, 0
    adds_bos = dummy_space = False

    def _encode(self, text):
        return ["01\n".index(character) + 2 for character in text]

    def _byte_table(self):
        return [b"", b"", b"0", b"1", b"\n"]

    def save(self, folder):
        raise NotImplementedError


class Majority(Task):
    """Write more of the answer's digit than of the other: worth 1; as many: 0.5; fewer: 0."""

    name = "majority"
    stop = (STOP,)

    def load(self, split):
        # The last problem has the prompt of the second and wants the opposite.
        pairs = (("00", "0"), ("01", "1"), ("1\n", "1"), ("01", "0"))
        return [
            Problem(id=str(i), problem=text, solution=answer, answer=answer)
            for i, (text, answer) in enumerate(pairs)
        ]

    def extract_answer(self, response):
        return response or None

    def grade(self, problem, response):
        right = response.count(problem.answer)
        wrong = response.count("0") + response.count("1") - right
        return 0.5 * (1 + np.sign(right - wrong))

    def finished(self, response):
        return not response.startswith("\n")


MODEL, PARAMS = tiny(seed=3, vocab_size=5, layers=1)
CONFIG = Config(
    name="majority",
    prompts=4,
    samples=8,
    task=TaskConfig(name=f"{__name__}:Majority", max_prompt_tokens=PROMPT_LENGTH),
    sampling=SamplingConfig(temperature=0.8, top_p=0.9, max_new_tokens=4, context=6),
    values=ValuesConfig(k=4, context=PROMPT_LENGTH - 1 + LONGEST),
    update=UpdateConfig(minibatch=16, microbatch=16, max_sequence=16),
    engine=EngineConfig(rows=4, slots=8, ring=16, chunk=32),
)


def with_values(**changes):
    """The configuration with other `values`."""
    return replace(CONFIG, values=replace(CONFIG.values, **changes))


def setup_of(config=CONFIG, ids="0123"):
    """The setup of a run on the problems `ids`; nothing is checked or loaded."""
    task, tokenizer = Majority(), Characters()
    train = [
        Prompted(p, np.array(tokenizer.encode(task.prompt(p), bos=True), np.int32))
        for p in task.load("train")
        if p.id in ids
    ]
    config = replace(config, prompts=len(train))
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    return Setup(config, task, tokenizer, MODEL, mesh, 0, train, [], [])


@cache
def weights():
    return policy.unstack(PARAMS, MODEL)


def iterate(setup, iteration=0):
    """Trajectories of an iteration and their credit."""
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        batch = trajectories.collect(setup, weights(), graders, iteration, 0, Clock())
        return batch, credit.assign(setup, weights(), graders, iteration, batch, Clock())


@cache
def iterations(count=24, **changes):
    """Setup, and batch and credit of many iterations; each is computed once for all tests."""
    setup = setup_of(with_values(**changes))
    return setup, [iterate(setup, i) for i in range(count)]


class Exact:
    """Values by enumeration: uncached forward passes and NumPy."""

    def __init__(self, setup):
        self.setup = setup
        self.problems = {p.problem.id: p for p in setup.train}
        self.after = {}
        settings = setup.config.sampling
        continuations = np.array(list(itertools.product(range(5), repeat=LONGEST - 1)))
        for prompted in self.problems.values():
            prompt = np.tile(prompted.tokens, (len(continuations), 1))
            logits = policy.forward(PARAMS, MODEL, np.hstack([prompt, continuations]))
            probs = truncated(np.asarray(logits, np.float64), settings.temperature, settings.top_p)
            for row, table in zip(continuations.tolist(), probs, strict=True):
                for t in range(LONGEST):
                    key = (tuple(prompted.tokens.tolist()), tuple(row[:t]))
                    self.after[key] = table[PROMPT_LENGTH - 1 + t]

    def moments(self, problem, response, most=4, context=PROMPT_LENGTH - 1 + LONGEST):
        """Mean reward of a continuation of `response`, and mean square."""
        budget = min(most, context - (PROMPT_LENGTH - 1 + len(response)))
        return self._moments(self.problems[problem], response, budget)

    def _moments(self, prompted, response, budget):
        if budget == 0:
            return np.zeros(2)
        total = np.zeros(2)
        probs = self.after[tuple(prompted.tokens.tolist()), response]
        for token, probability in enumerate(probs):
            if probability == 0:
                continue
            grown = (*response, token)
            text = "".join(("", "", "0", "1", "\n")[t] for t in grown)
            if token != EOS and STOP not in text:
                total += probability * self._moments(prompted, grown, budget - 1)
                continue
            text = text.partition(STOP)[0]
            task = self.setup.task
            reward = task.grade(prompted.problem, text) if task.finished(text) else 0
            total += probability * np.array([reward, reward**2])
        return total


def truncated(logits, temperature, top_p):
    """Probabilities after temperature and nucleus, by sorting."""
    probs = np.exp(logits / temperature)
    probs /= probs.sum(axis=-1, keepdims=True)
    order = np.argsort(-probs, axis=-1, kind="stable")
    ranked = np.take_along_axis(probs, order, axis=-1)
    kept = np.where(np.cumsum(ranked, axis=-1) - ranked < top_p, ranked, 0)
    out = np.zeros_like(probs)
    np.put_along_axis(out, order, kept / kept.sum(axis=-1, keepdims=True), axis=-1)
    return out
