"""From characters to tokens to states: each token's step, and the prefixes that get a value."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.small_tokenizers import byte_level
from vinejax import tasks
from vinejax.vine import nodes_of, states_every, steps_of_tokens


def test_the_worked_example():
    # "\nA cat.\nTwo.\n#### 5\n" has the steps [0, 7) and [7, 20); EOS stands at the text's end.
    starts = [0, 1, 2, 6, 7, 8, 11, 12, 13, 17, 18, 19, 20]
    steps = steps_of_tokens([0, 7, 20], starts)
    assert_array_equal(steps.of_token, [0] * 4 + [1] * 9)
    assert_array_equal(steps.starts, [0, 4])
    assert steps.count == 2
    assert steps.moved == 0


def test_the_worked_example_through_a_tokenizer_and_the_task():
    response = "\nA cat.\nTwo.\n#### 5\n"
    tokenizer, task = byte_level(), tasks.get("gsm8k", path="unused")
    ids = [*tokenizer.encode(response), tokenizer.eos_id]
    boundaries, starts = task.split_steps(response), tokenizer.char_starts(ids)
    assert boundaries == [0, 7, 20]
    steps = steps_of_tokens(boundaries, starts)
    assert_array_equal(steps.of_token, [int(at >= 7) for at in starts])
    assert steps.of_token[-1] == 1


def test_a_token_that_straddles_a_boundary_belongs_to_the_step_in_which_it_starts():
    # ".\n" starts at 6 and holds the newline that begins step 1, which is so one token shorter.
    steps = steps_of_tokens([0, 7, 20], [0, 1, 2, 6, 8, 11, 12, 20])
    assert_array_equal(steps.of_token, [0, 0, 0, 0, 1, 1, 1, 1])
    assert_array_equal(steps.starts, [0, 4])
    assert steps.moved == 1


def test_tokens_that_share_an_offset_are_in_one_step():
    # Characters 0, 1 and 2, of which 1 is spelled by three byte tokens.
    for boundaries, expected in (([0, 1, 3], [0, 1, 1, 1, 1]), ([0, 2, 3], [0, 0, 0, 0, 1])):
        steps = steps_of_tokens(boundaries, [0, 1, 1, 1, 2])
        assert_array_equal(steps.of_token, expected)
        assert steps.moved == 0


def test_an_end_of_sequence_token_belongs_to_the_last_step():
    steps = steps_of_tokens([0, 2, 4], [0, 1, 2, 3, 4])
    assert_array_equal(steps.of_token, [0, 0, 1, 1, 1])


def test_one_step():
    steps = steps_of_tokens([0, 3], [0, 1, 2])
    assert_array_equal(steps.of_token, [0, 0, 0])
    assert_array_equal(steps.starts, [0])
    assert steps.count == 1


def test_a_response_that_is_the_end_of_sequence_alone_is_one_step():
    steps = steps_of_tokens([0], [0])
    assert_array_equal(steps.of_token, [0])
    assert_array_equal(steps.starts, [0])


def test_a_response_without_tokens_has_no_step():
    for boundaries in ([0], [0, 5]):
        steps = steps_of_tokens(boundaries, [])
        assert steps.count == len(steps.of_token) == steps.moved == 0


def test_a_step_in_which_no_token_starts_has_no_state():
    # One token covers 2 to 6, and with it all of the steps [3, 4) and [4, 5).
    steps = steps_of_tokens([0, 3, 4, 5, 8], [0, 1, 2, 6, 7])
    assert_array_equal(steps.of_token, [0, 0, 0, 1, 1])
    assert steps.count == 2
    assert steps.moved == 3


def test_a_boundary_inside_the_last_token_is_one_that_moved():
    cut_off = steps_of_tokens([0, 3, 4], [0, 1, 2])
    assert_array_equal(cut_off.of_token, [0, 0, 0])
    ended = steps_of_tokens([0, 3, 4], [0, 1, 2, 4])
    assert_array_equal(ended.of_token, [0, 0, 0, 1])
    assert cut_off.moved == ended.moved == 1


def test_two_hundred_steps():
    steps = steps_of_tokens(range(0, 601, 3), range(601))
    assert steps.count == 200
    assert_array_equal(steps.starts, np.arange(0, 600, 3))
    assert_array_equal(steps.of_token, [*np.repeat(np.arange(200), 3), 199])


@st.composite
def texts_cut_twice(draw):
    """Boundaries of steps and, independently, the starts of tokens, in a text of some length."""
    length = draw(st.integers(1, 60))
    inside = st.lists(st.integers(1, length), max_size=30)
    boundaries = sorted({0, length, *draw(inside)})
    starts = [0, *sorted(draw(inside))]  # repeated starts are pieces of one character
    return boundaries, starts


@given(texts_cut_twice())
def test_every_token_has_exactly_one_step_and_steps_cover_the_response(cuts):
    boundaries, starts = cuts
    steps = steps_of_tokens(boundaries, starts)
    assert len(steps.of_token) == len(starts)
    assert steps.starts[0] == 0
    ends = np.append(steps.starts[1:], len(starts))
    spans = [np.arange(start, end) for start, end in zip(steps.starts, ends, strict=True)]
    assert all(len(span) for span in spans)
    assert_array_equal(np.concatenate(spans), np.arange(len(starts)))
    for index, span in enumerate(spans):
        assert (steps.of_token[span] == index).all()
    # Two tokens share a step exactly if no boundary lies after the one and up to the other.
    for t, (a, b) in enumerate(pairwise(starts)):
        is_cut = any(a < boundary <= b for boundary in boundaries[1:-1])
        assert steps.of_token[t + 1] - steps.of_token[t] == is_cut


@given(texts_cut_twice(), st.integers(1, 8))
def test_pieces_of_n_tokens_cover_the_response(cuts, spacing):
    steps = steps_of_tokens(*cuts)
    pieces = states_every(steps, spacing)
    count = len(steps.of_token)
    assert_array_equal(pieces.of_token, np.arange(count) // spacing)
    assert_array_equal(pieces.starts, np.arange(0, count, spacing))


def test_states_may_be_the_steps_the_tokens_or_every_n_of_them():
    steps = steps_of_tokens([0, 3, 7], range(7))
    assert states_every(steps, None) is steps
    assert_array_equal(states_every(steps, 1).starts, range(7))
    assert_array_equal(states_every(steps, 1).of_token, range(7))
    assert_array_equal(states_every(steps, 3).starts, [0, 3, 6])
    assert_array_equal(states_every(steps, 7).starts, [0])
    assert_array_equal(states_every(steps, 100).starts, [0])
    assert states_every(steps_of_tokens([0], []), 4).count == 0


def prefixes(nodes, tokens):
    """The tokens of each node."""
    return [
        tuple(tokens[m][:length])
        for m, length in zip(nodes.trajectory, nodes.prefix_length, strict=True)
    ]


# Three responses to the prompt [9, 8] and one to [7], in steps of two tokens; two begin alike.
TOKENS = [
    np.array([9, 8, 1, 2, 3, 4, 5, 6]),
    np.array([9, 8, 1, 2, 3, 4, 6, 6]),
    np.array([9, 8, 1, 3, 3, 4]),
    np.array([7, 1, 2, 3]),
]
PROMPT_LENGTH = [2, 2, 2, 1]
PROBLEMS = ["a", "a", "a", "b"]
STEPS = [steps_of_tokens([*range(0, n, 2), n], range(n)) for n in (6, 6, 4, 3)]


def test_equal_states_of_a_prompts_trajectories_share_a_node():
    nodes = nodes_of(TOKENS, PROMPT_LENGTH, STEPS, PROBLEMS)
    assert [list(own) for own in nodes.of_state] == [[0, 1, 2], [0, 1, 2], [0, 3], [4, 5]]
    assert prefixes(nodes, TOKENS) == [
        (9, 8),
        (9, 8, 1, 2),
        (9, 8, 1, 2, 3, 4),
        (9, 8, 1, 3),
        (7,),
        (7, 1, 2),
    ]
    assert (nodes.copy == 0).all()


def test_without_sharing_every_state_has_a_node_and_equal_ones_are_numbered():
    nodes = nodes_of(TOKENS, PROMPT_LENGTH, STEPS, PROBLEMS, deduplicate=False)
    assert_array_equal(np.concatenate(nodes.of_state), range(10))
    assert_array_equal(nodes.trajectory, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    assert_array_equal(nodes.copy, [0, 0, 0, 1, 1, 1, 2, 0, 0, 0])
    keys = list(zip(prefixes(nodes, TOKENS), nodes.copy, strict=True))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_problems_with_the_same_prompt_share_no_node(deduplicate):
    # They may want different answers; and numbering copies by problem keeps one problem's estimates
    # independent of what else is in the batch.
    tokens, lengths, steps = TOKENS[:1] * 2, [2, 2], STEPS[:1] * 2
    nodes = nodes_of(tokens, lengths, steps, ["a", "b"], deduplicate=deduplicate)
    assert [list(own) for own in nodes.of_state] == [[0, 1, 2], [3, 4, 5]]
    assert_array_equal(nodes.trajectory, [0, 0, 0, 1, 1, 1])
    assert (nodes.copy == 0).all()


@pytest.mark.parametrize("deduplicate", [True, False])
def test_the_first_state_is_the_prompt_and_the_last_is_before_the_last_step(deduplicate):
    nodes = nodes_of(TOKENS, PROMPT_LENGTH, STEPS, PROBLEMS, deduplicate=deduplicate)
    for m, own in enumerate(nodes.of_state):
        found = [prefixes(nodes, TOKENS)[n] for n in own]
        assert found[0] == tuple(TOKENS[m][: PROMPT_LENGTH[m]])
        assert found[-1] == tuple(TOKENS[m][: PROMPT_LENGTH[m] + STEPS[m].starts[-1]])
        assert len(found) == STEPS[m].count
    # The terminal state would be the whole trajectory.
    assert not set(prefixes(nodes, TOKENS)) & {tuple(row) for row in TOKENS}


@pytest.mark.parametrize("max_step", [0, 1, 2, 25])
def test_the_step_cap_keeps_state_indices_up_to_itself(max_step):
    nodes = nodes_of(TOKENS, PROMPT_LENGTH, STEPS, PROBLEMS, max_step=max_step)
    assert [len(own) for own in nodes.of_state] == [
        min(steps.count, max_step + 1) for steps in STEPS
    ]


def test_a_response_without_tokens_has_no_node():
    empty = steps_of_tokens([0], [])
    nodes = nodes_of([np.array([9, 8]), TOKENS[0]], [2, 2], [empty, STEPS[0]], ["a", "a"])
    assert [len(own) for own in nodes.of_state] == [0, 3]
    alone = nodes_of([np.array([9, 8])], [2], [empty], ["a"])
    assert alone.trajectory.shape == alone.prefix_length.shape == alone.copy.shape == (0,)
