"""Evaluation statistics against enumeration, simulation and hand calculation."""

import itertools
import math

import numpy as np
import pytest

from vinejax.statistics import Evaluation, majority, pass_at_k, summarise


def test_pass_at_1_is_the_mean_grade_with_a_t_interval_over_problems():
    # Means of the problems: 1, 0.5, 0. Mean 0.5, standard deviation 0.5, error 0.5 / sqrt(3),
    # t(2 degrees of freedom, 97.5 %) = 4.3027: half width 1.242, cut to [0, 1].
    result = summarise(np.array([[1, 1], [1, 0], [0, 0]]))
    assert result == Evaluation(0.5, (0.0, 1.0), problems=3, samples=2, full_marks=0.5)
    # 16 problems, 8 always right: sd 0.5164, error 0.1291, t(15) = 2.1314, half width 0.2752.
    result = summarise(np.repeat([[1.0] * 4, [0.0] * 4], 8, axis=0))
    np.testing.assert_allclose(result.interval, (0.5 - 0.2752, 0.5 + 0.2752), atol=1e-4)


def test_a_part_of_the_marks_counts_in_the_mean_and_not_in_the_share_with_full_marks():
    # Mean (1 + 0.5 + 0.25 + 0.25) / 4 = 0.5; one of four answers has grade 1.
    result = summarise(np.array([[1.0, 0.5], [0.25, 0.25]]))
    assert (result.pass_at_1, result.full_marks) == (0.5, 0.25)


def test_more_samples_of_the_same_problems_do_not_narrow_the_interval():
    means = np.array([[1.0], [0.0], [1.0], [1.0], [0.0], [1.0]])
    once, often = summarise(means), summarise(np.repeat(means, 16, axis=1))
    assert once.interval == often.interval


@pytest.mark.parametrize("grade", [0.0, 0.5, 1.0])
def test_equal_problems_have_an_interval_of_positive_width(grade):
    result = summarise(np.full((20, 4), grade))
    low, high = result.interval
    assert 0 <= low <= grade <= high <= 1
    assert high - low > 0.1
    # Wilson for 20 of 20: low = 1 / (1 + z^2 / 20) = 20 / 23.8415.
    if grade == 1:
        assert low == pytest.approx(20 / 23.8415, abs=1e-4)


def test_one_problem_gives_a_wide_interval_not_nan():
    low, high = summarise(np.array([[1.0, 1.0, 0.0]])).interval
    assert 0 <= low < 2 / 3 < high <= 1
    assert high - low > 0.5


def test_interval_covers_the_truth_of_correlated_samples():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        difficulty = rng.beta(0.5, 0.5, size=(60, 1))  # mean 0.5
        low, high = summarise(rng.random((60, 8)) < difficulty).interval
        covered += low <= 0.5 <= high
    # 95 % of 400 is 380, binomial standard deviation 4.4.
    assert abs(covered - 380) < 4 * 4.4


@pytest.mark.parametrize("bad", [np.zeros((0, 4)), np.zeros(3), np.array([[1.2]]), [[math.nan]]])
def test_what_is_no_table_of_grades_is_refused(bad):
    with pytest.raises(ValueError, match="grade"):
        summarise(np.asarray(bad))


def test_pass_at_k_equals_the_share_of_subsets_with_a_right_answer():
    for n in range(1, 7):
        for right, k in itertools.product(range(n + 1), range(1, n + 1)):
            drawn = list(itertools.combinations([1] * right + [0] * (n - right), k))
            expected = sum(any(subset) for subset in drawn) / len(drawn)
            assert pass_at_k(right, n, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_takes_many_problems_and_large_numbers():
    assert pass_at_k(np.array([0, 1, 256]), 256, 1).tolist() == [0, 1 / 256, 1]
    values = pass_at_k(np.arange(2001), 2000, 500)
    assert np.isfinite(values).all()
    assert (np.diff(values) >= 0).all()
    assert values[[0, -1]].tolist() == [0, 1]


@pytest.mark.parametrize(("c", "n", "k"), [(1, 4, 5), (1, 4, 0), (5, 4, 1), (-1, 4, 1)])
def test_pass_at_k_refuses_impossible_counts(c, n, k):
    with pytest.raises(ValueError):
        pass_at_k(c, n, k)


def test_majority_takes_the_most_frequent_answer_and_the_first_of_equals():
    assert majority(["7", "8", "8"], [1, 0, 0]) == 0
    assert majority(["7", "8", "8", "7"], [1, 0, 0, 1]) == 1
    assert majority(["8", "7", "7", "8"], [0, 1, 1, 0]) == 0
    assert majority([None, None, "7"], [0, 0, 1]) == 1
    assert majority([None, None], [0, 0]) == 0
    assert majority([], []) == 0
    assert majority(["7", "8"], [0.5, 1]) == 0.5


def test_majority_agrees_with_enumeration():
    for answers in itertools.product(["a", "b", "c", None], repeat=4):
        grades = [float(answer == "b") for answer in answers]
        counts = {x: answers.count(x) for x in answers if x is not None}
        best = max(counts.values(), default=0)
        first = next((x for x in answers if x is not None and counts[x] == best), None)
        assert majority(answers, grades) == float(first == "b")
