"""Accuracy from sampled answers: pass@1 with an interval, pass@k, majority vote. NumPy only.

pass@1 is the mean grade of an answer, which is what training raises; where every grade is 0 or 1
that is the share of right answers. Where a task gives a part of the marks, the share with full
marks is lower, and it is that share which pass@k counts.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Evaluation:
    """Accuracy over a sample of problems, the same number of answers to each."""

    pass_at_1: float  # mean grade
    interval: tuple[float, float]  # low, high: where the accuracy on all such problems lies, 95 %
    problems: int
    samples: int  # answers to each problem
    full_marks: float  # share of answers with grade 1; below `pass_at_1` where some get a part


def summarise(correct: Float[np.ndarray, "P n"]) -> Evaluation:
    """pass@1 and its interval, from the grades in [0, 1] of n answers to each of P problems.

    Answers to one problem resemble each other, so problems are the independent observations: the
    interval is mean +- t(P - 1) x standard error of the problems' means, cut to [0, 1]. Where those
    are all equal, as when every answer is right, it is Wilson's for P independent answers: never
    of zero width.
    """
    grades = np.asarray(correct, np.float64)
    if grades.ndim != 2 or grades.size == 0:
        raise ValueError(f"grades have shape {grades.shape}; need problems x samples, not empty")
    if not ((grades >= 0) & (grades <= 1)).all():
        raise ValueError("a grade is not in [0, 1]")
    problems, samples = grades.shape
    means = grades.mean(axis=1)
    mean = float(means.mean())
    interval = _wilson(mean, problems) if np.ptp(means) == 0 else _student(means)
    return Evaluation(mean, interval, problems, samples, float((grades >= 1).mean()))


def pass_at_k(c: int | Int[np.ndarray, "P"], n: int, k: int) -> Float[np.ndarray, "P"]:
    """Probability that k of the n answers, drawn without replacement, hold one of the c right ones.

    Right are those with full marks. 1 - C(n-c, k) / C(n, k): the unbiased estimate of pass@k (Chen
    et al., arXiv 2107.03374, eq. 1).
    """
    counts = np.asarray(c)
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}; choose 1 to n = {n}")
    if ((counts < 0) | (counts > n)).any():
        raise ValueError(f"a count of right answers is not in 0..{n}")
    # Quotients of exact integers: no overflow, no cancellation, for any n.
    table = [1.0 - math.comb(n - right, k) / math.comb(n, k) for right in range(n + 1)]
    return np.asarray(table)[counts]


def majority(answers: Sequence[str | None], grades: Sequence[float]) -> float:
    """Grade of the most frequent answer to one problem (maj@k, k = number of answers).

    Answers are counted as they are written. Of equally frequent ones the first to appear wins; None
    (no answer) has no vote, and when nothing has, the grade is 0. Equal answers may have got
    different grades; that of the first counts.
    """
    if len(answers) != len(grades):
        raise ValueError(f"{len(answers)} answers, {len(grades)} grades")
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return 0.0
    winner = votes.most_common(1)[0][0]  # a Counter keeps the order of appearance among equals
    return float(grades[answers.index(winner)])


def interval_of_mean(values: Sequence[float] | Float[np.ndarray, "n"]) -> tuple[float, float]:
    """Where the mean of all such values lies, 95 %: mean +- t(n - 1) x standard error.

    Of a single value nothing is known: minus to plus infinity.
    """
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if sample.size == 1:
        return -math.inf, math.inf
    error = sample.std(ddof=1) / math.sqrt(sample.size)
    half = float(special.stdtrit(sample.size - 1, 0.5 + CONFIDENCE / 2) * error)
    return mean - half, mean + half


def _student(means: Float[np.ndarray, "P"]) -> tuple[float, float]:
    low, high = interval_of_mean(means)
    return max(0.0, low), min(1.0, high)


def _wilson(mean: float, count: int) -> tuple[float, float]:
    """Wilson's score interval for `count` independent answers (JASA 22, 1927)."""
    z2 = float(special.ndtri(0.5 + CONFIDENCE / 2)) ** 2 / count
    centre = (mean + z2 / 2) / (1 + z2)
    half = math.sqrt(z2 * (mean * (1 - mean) + z2 / 4)) / (1 + z2)
    return max(0.0, centre - half), min(1.0, centre + half)
