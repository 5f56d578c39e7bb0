"""Prefix trees against comparing everything with everything; pooled values by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vinejax import vine
from vinejax.vine.states import Steps

PROMPT = [7, 7]


def cut(starts, length):
    """Steps with these first tokens."""
    of_token = np.searchsorted(starts, np.arange(length), side="right") - 1
    return Steps(np.array(starts, np.int32), of_token.astype(np.int32), 0)


def nodes_and_tree(responses, starts, problems, prompt=PROMPT):
    tokens = [np.array([*prompt, *r], np.int32) for r in responses]
    steps = [cut(s, len(r)) for s, r in zip(starts, responses, strict=True)]
    nodes = vine.nodes_of(tokens, [len(prompt)] * len(tokens), steps, problems)
    return tokens, nodes, vine.PrefixTree(nodes, tokens, problems)


# Three trajectories of one problem: the first two share the state [1, 2], the third only the
# prompt. States: 0 the prompt, 1 [1, 2], 2 [1, 2, 3], 3 [1, 2, 4, 4], 4 [5].
RESPONSES = [[1, 2, 3, 9], [1, 2, 4, 4, 9], [5, 9]]
STARTS = [[0, 2, 3], [0, 2, 4], [0, 1]]


def small():
    return nodes_and_tree(RESPONSES, STARTS, ["a"] * 3)


def test_states_that_a_sequence_passes_by_hand():
    tokens, nodes, tree = small()
    assert nodes.prefix_length.tolist() == [2, 4, 5, 6, 3]
    assert [tree.of_problem("a", row) for row in tokens] == [[0, 1, 2], [0, 1, 3], [0, 4]]
    assert tree.of_problem("b", tokens[0]) == []
    assert tree.after(0, np.array([1, 2, 4, 4])) == [0, 1, 3]
    assert tree.after(0, np.array([1, 2, 4])) == [0, 1]
    assert tree.after(1, np.array([3])) == [1, 2]  # it ends there, and was there
    assert tree.after(1, np.array([4, 3])) == [1]
    assert tree.after(4, np.array([1, 2])) == [4]  # a path is one from the start
    assert tree.after(2, np.array([], np.int32)) == [2]


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_finds_what_comparing_all_prefixes_finds(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 24)
    responses = [rng.integers(0, 2, n).tolist() for n in lengths]
    starts = [
        [0, *sorted(rng.permutation(np.arange(1, n))[: rng.integers(0, 6)].tolist())]
        for n in lengths
    ]
    problems = [str(i % 2) for i in range(24)]
    tokens, nodes, tree = nodes_and_tree(responses, starts, problems)
    prefix = [
        (problems[m], tokens[m][:n].tolist())
        for m, n in zip(nodes.trajectory, nodes.prefix_length, strict=True)
    ]

    def passes(problem, row, start):
        where = [
            (len(p), i)
            for i, (name, p) in enumerate(prefix)
            if name == problem and start <= len(p) and row[: len(p)] == p
        ]
        return [i for _, i in sorted(where)]

    for problem, row in zip(problems, tokens, strict=True):
        assert tree.of_problem(problem, row) == passes(problem, row.tolist(), 0)
    for node, (problem, begun) in enumerate(prefix):
        more = rng.integers(0, 2, 6)
        expected = passes(problem, begun + more.tolist(), len(begun))
        assert tree.after(node, more) == expected


def pooled():
    """The trajectories (right, wrong, wrong) and four rollouts, three of them from the prompt."""
    tokens, nodes, tree = small()
    pool = vine.Pool(len(nodes.trajectory))
    for row in tokens:
        pool.add(tree.of_problem("a", row))
    pool.add(tree.after(0, np.array([1, 2, 3, 8])))
    pool.add(tree.after(0, np.array([1, 2, 8])))
    pool.add(tree.after(0, np.array([6])))
    pool.add(tree.after(1, np.array([4, 4, 8])))
    return nodes, pool


RETURNS = np.array([1, 0, 0, 1, 0, 1, 1], np.float32)
TRUNCATED = np.array([0, 1, 0, 0, 1, 0, 0], bool)


def test_counts_by_hand():
    _, pool = pooled()
    # The prompt: 3 trajectories, 3 rollouts. [1, 2]: 2 trajectories, 2 rollouts that came by and
    # its own one. A rollout from [1, 2] is no sample of the prompt.
    assert pool.count.tolist() == [6, 5, 2, 2, 1]


def test_values_by_hand():
    _, pool = pooled()
    state, judged = np.array([0, 1, 1, 2, 3, 4]), np.array([0, 0, 1, 0, 1, 2])
    out = pool.values(RETURNS, TRUNCATED, state, judged)
    # The prompt without the first trajectory: 0, 0, 1, 0, 1. [1, 2] without it: 0, 1, 0, 1, and
    # without the second: 1, 1, 0, 1. Behind them one rollout each, and none behind [5].
    assert_allclose(out.mean, [0.4, 0.5, 0.75, 1, 1, 0])
    assert_array_equal(out.count, [5, 4, 4, 1, 1, 0])
    assert_allclose(
        out.stderr, [np.sqrt(1.2 / 4 / 5), np.sqrt(1 / 3 / 4), 0.25, 0.5, 0.5, 0.5], rtol=1e-6
    )
    assert_allclose(out.truncated_share, [0.4, 0.5, 0.25, 0, 0, 0])


def test_the_own_return_has_no_influence_and_those_of_others_have():
    _, pool = pooled()
    changed = RETURNS.copy()
    changed[0] = 0
    for judged, is_own in ((0, True), (1, False)):
        state = np.array([0, 1])
        a, b = (
            pool.values(returns, TRUNCATED, state, np.full(2, judged)).mean
            for returns in (RETURNS, changed)
        )
        assert (a == b).all() == is_own


def test_equal_returns_have_no_error_and_few_have_the_largest():
    _, pool = pooled()
    out = pool.values(np.full(7, 0.3), TRUNCATED, np.array([0, 4]), np.array([0, 2]), lowest=-1.0)
    assert_allclose(out.mean, [0.3, 0], rtol=1e-6)
    assert_array_equal(out.stderr, [0, 1])  # half of -1 to 1
