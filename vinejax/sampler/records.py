"""What goes into the sampler and what comes out: trunks, jobs, settings, layout, samples.

Every phase asks for the same thing: *continue the first p tokens of trunk m, sample number k, with
a budget of b new tokens*. Trajectories, Monte Carlo values and evaluation differ in these arrays
alone. Host records hold NumPy arrays; nothing here touches a device.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vinejax.stop import StopTable

# A trunk's cache is padded to one of a few lengths, so ragged lengths compile a few times only.
MIN_BUCKET = 16


def bucket(length: int) -> int:
    """The padded length for `length`: a multiple of 16 up to 128, of 32 up to 256, then coarser.

    There are two to a power of two above 256, because everything that depends on a length is
    compiled once more for each.
    """
    power = max(length - 1, 1).bit_length()
    step = max(MIN_BUCKET, 1 << max(0, power - 3 if power <= 8 else power - 2))
    return -(-max(length, 1) // step) * step


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n` (1 for n < 1)."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Trunks:
    """Token sequences that vines grow from: prompts, or whole trajectories."""

    tokens: tuple[np.ndarray, ...]  # each int32 [length], at least one token
    prompt_length: np.ndarray  # int32 [N]; the response, where stop strings count, starts here

    @staticmethod
    def of(
        tokens: Sequence[Sequence[int] | np.ndarray],
        prompt_length: Sequence[int] | np.ndarray | None = None,
    ) -> "Trunks":
        """Trunks from token id sequences; without `prompt_length` each is all prompt."""
        rows = tuple(np.asarray(row, np.int32) for row in tokens)
        if any(len(row) == 0 for row in rows):
            raise ValueError("a trunk has no token: give it at least a beginning-of-sequence token")
        lengths = [len(row) for row in rows] if prompt_length is None else prompt_length
        return Trunks(rows, np.asarray(lengths, np.int32))

    @property
    def length(self) -> np.ndarray:
        """int32 [N]: tokens in each trunk."""
        return np.array([len(row) for row in self.tokens], np.int32)

    def padded(self, count: int, width: int) -> np.ndarray:
        """int32 [count, width]: token ids, zeros after each trunk and in the rows beyond them."""
        out = np.zeros((count, width), np.int32)
        for row, tokens in zip(out, self.tokens, strict=False):
            row[: len(tokens)] = tokens
        return out


@dataclass(frozen=True)
class Jobs:
    """One continuation each. Arrays are int32 [J]."""

    trunk: np.ndarray
    prefix_length: np.ndarray  # tokens of the trunk that are kept; at least 1
    sample: np.ndarray  # numbers the samples of one node
    max_new_tokens: np.ndarray
    copy: np.ndarray  # tells nodes of equal tokens apart that want independent samples; usually 0

    @staticmethod
    def of(
        trunk: ArrayLike,
        prefix_length: ArrayLike,
        sample: ArrayLike,
        max_new_tokens: ArrayLike,
        copy: ArrayLike = 0,
    ) -> "Jobs":
        """Jobs from arrays or numbers, which are broadcast against `trunk`."""
        shape = np.shape(trunk)
        columns = (trunk, prefix_length, sample, max_new_tokens, copy)
        return Jobs(*(np.broadcast_to(np.asarray(c, np.int32), shape).copy() for c in columns))

    @staticmethod
    def at_ends(trunks: Trunks, samples: int, max_new_tokens: ArrayLike) -> "Jobs":
        """`samples` continuations of every whole trunk, trunk by trunk."""
        trunk = np.repeat(np.arange(len(trunks.tokens)), samples)
        sample = np.tile(np.arange(samples), len(trunks.tokens))
        budget = np.broadcast_to(np.asarray(max_new_tokens, np.int32), len(trunks.tokens))
        return Jobs.of(trunk, trunks.length[trunk], sample, budget[trunk])

    def __len__(self) -> int:
        return len(self.trunk)

    def take(self, index: np.ndarray) -> "Jobs":
        """The jobs at `index`, in that order."""
        return Jobs(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Settings:
    """The distribution that is drawn from, and what ends a continuation.

    Order of the truncations: temperature, then top-k, then the nucleus of the renormalised rest.
    The nucleus is the smallest set of most likely tokens whose mass reaches `top_p`; among equal
    probabilities the lower id comes first, so at least one token always stays.
    """

    temperature: float = 1.0  # 0: the most likely token
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    eos_ids: tuple[int, ...] = ()
    stop: StopTable | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"sampling.temperature is {self.temperature}: give 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"sampling.top_p is {self.top_p}: give a number in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"sampling.top_k is {self.top_k}: give 0 (no limit) or more")

    @property
    def score_temperature(self) -> float:
        """The temperature of `logprob_full` and of every score compared with it; 1 when greedy."""
        return self.temperature or 1.0


@dataclass(frozen=True)
class Layout:
    """How the engine lays work out on the device. It changes speed and memory, never a token."""

    rows: int  # each holds the KV of `trunks_per_row` trunks
    slots: int  # continuations that a row decodes at once
    ring: int  # cells of a slot's own KV; a longer vine is re-rooted
    chunk: int = 256  # steps between two looks of the host
    trunks_per_row: int = 2  # a second one fills while the first drains

    def __post_init__(self) -> None:
        for name in ("rows", "slots", "chunk", "trunks_per_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"engine.{name} is {getattr(self, name)}: give 1 or more")
        if self.ring < 2:
            raise ValueError(f"engine.ring is {self.ring}: a vine needs 2 cells or more")

    @staticmethod
    def auto(trunks: int, jobs_per_trunk: float, max_new_tokens: int, slots: int = 128) -> "Layout":
        """A layout for `slots` continuations at once.

        A row gets as many of them as a trunk has work for, 16 at most, and fewer where that would
        leave less than 8 rows: the more there are, the later one of them runs out of work.
        """
        per_row = min(16, power_of_two(int(np.ceil(jobs_per_trunk))))
        per_row = max(1, min(per_row, slots // min(8, power_of_two(trunks))))
        rows = max(1, min(power_of_two(trunks), slots // per_row))
        return Layout(rows, per_row, ring=min(512, bucket(max_new_tokens)))


@dataclass
class Counters:
    """What sampling did, in tokens and steps; added up over calls."""

    tokens_prefilled: int = 0  # tokens fed to build a trunk's KV
    tokens_sampled: int = 0
    steps: int = 0  # passes over all slots
    slot_steps: int = 0  # slots times steps: what there was room for
    rerooted: int = 0

    def __iadd__(self, other: "Counters") -> "Counters":
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def slot_utilisation(self) -> float:
        """Share of slot steps that produced a token of some job (ideal steps over steps)."""
        return self.tokens_sampled / self.slot_steps if self.slot_steps else 1.0


@dataclass(frozen=True)
class Samples:
    """The continuation of every job, in the order of the jobs."""

    tokens: np.ndarray  # int32 [J, M]; a sampled end-of-sequence token is included; 0 after the end
    logprob: np.ndarray  # fp32 [J, M], nats, under the distribution that was drawn from
    logprob_full: np.ndarray  # fp32 [J, M], nats, under the temperature alone
    length: np.ndarray  # int32 [J], tokens
    finish: np.ndarray  # int32 [J], a Finish value
    counters: Counters


def node_hash(tokens: np.ndarray) -> tuple[int, int]:
    """Two 32-bit words that name a token prefix; the same on every machine."""
    digest = hashlib.blake2b(np.ascontiguousarray(tokens, "<i4").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
