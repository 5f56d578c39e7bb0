"""Right responses up to a number a problem; pairs of accepted and rejected ones, drawn by seed."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinejax.train.selection import Pair, Sampled, correct, pairs

REWARDS = st.sampled_from([0.0, 0.5, 1.0])
RESPONSES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), REWARDS), max_size=30)


def sampled(rows):
    return [Sampled(problem, i, n, reward) for n, (problem, i, reward) in enumerate(rows)]


def test_right_responses_are_kept_up_to_a_number_a_problem():
    rows = [("a", 1, 1.0), ("a", 0, 1.0), ("b", 0, 0.5), ("a", 0, 0.0), ("b", 1, 1.0), ("a", 2, 1)]
    kept = correct(sampled(rows), most=2)
    assert [(r.problem, r.iteration, r.sample) for r in kept] == [
        ("a", 0, 1),
        ("a", 1, 0),
        ("b", 1, 4),
    ]


def test_half_a_reward_is_accepted_in_a_pair_but_not_imitated():
    rows = sampled([("a", 0, 0.5), ("a", 0, 0.0), ("a", 0, 0.49), ("b", 0, 1.0)])
    assert pairs(rows, most=64, seed=0) == [Pair(rows[0], rows[1]), Pair(rows[0], rows[2])]
    assert correct(rows, most=10) == [rows[3]]


@given(RESPONSES, st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_order_that_responses_come_in_does_not_matter(rows, most, order):
    responses = sampled(rows)
    mixed = list(responses)
    order.shuffle(mixed)
    assert pairs(mixed, most, seed=3) == pairs(responses, most, seed=3)
    assert correct(mixed, most) == correct(responses, most)


@given(RESPONSES, st.integers(1, 6))
def test_pairs_are_distinct_and_all_there_are_up_to_the_limit(rows, most):
    responses = sampled(rows)
    found = pairs(responses, most, seed=1)
    assert len(set(found)) == len(found)
    for chosen, rejected in found:
        assert chosen.problem == rejected.problem
        assert chosen.reward >= 0.5 > rejected.reward
    counts = Counter(chosen.problem for chosen, _ in found)
    for problem in "abc":
        accepted = sum(r.problem == problem and r.reward >= 0.5 for r in responses)
        rejected = sum(r.problem == problem and r.reward < 0.5 for r in responses)
        assert counts[problem] == min(most, accepted * rejected)


def test_the_draw_is_even_and_follows_the_seed():
    responses = sampled([("a", 0, float(i < 3)) for i in range(6)])
    draws = [frozenset(pairs(responses, 3, seed)) for seed in range(600)]
    assert draws == [frozenset(pairs(responses, 3, seed)) for seed in range(600)]
    counts = Counter(pair for draw in draws for pair in draw)
    assert len(counts) == 9
    assert all(140 < n < 260 for n in counts.values())  # 200 on average, 12 of standard deviation


def test_the_draw_of_a_problem_does_not_depend_on_the_others():
    random.seed(0)
    rows = [(p, 0, float(random.random() < 0.5)) for p in "ab" * 20]
    alone = [row for row in sampled(rows) if row.problem == "b"]
    together = pairs(sampled(rows), most=5, seed=2)
    assert [pair for pair in together if pair.chosen.problem == "b"] == pairs(alone, 5, seed=2)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_nothing_to_choose_from(reward):
    same = sampled([("a", 0, reward)] * 4)
    assert pairs(same, 64, seed=0) == []
    assert correct(sampled([]), 10) == []
    assert len(correct(same, 10)) == 4 * reward
