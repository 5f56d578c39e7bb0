"""The token automaton agrees with `str.find` on the decoded text, wherever the tokens are cut."""

import itertools

import numpy as np
import pytest

from tests.shared_data import REASON, shared_data
from tests.small_tokenizers import SMALL
from vinejax.stop import StopTable, find
from vinejax.tokenizer import load_tokenizer

STOP = "\n\n\nProblem:"


def first_match(table: StopTable, ids: list[int]) -> int | None:
    """Number of tokens after which the stop string is complete."""
    states = table.states(ids)
    return states.index(table.matched) + 1 if table.matched in states else None


def expected_match(texts: list[str], stops: tuple[str, ...]) -> int | None:
    for count in range(1, len(texts) + 1):
        if any(stop in "".join(texts[:count]) for stop in stops):
            return count
    return None


@pytest.mark.parametrize(
    "stops",
    [("aab",), ("aab", "ba"), ("ab", "aabb"), ("a", "bb"), ("abab", "bab"), ("bbbb", "abc")],
)
def test_every_sequence_of_a_small_vocabulary_stops_where_its_text_does(stops):
    pieces = ["a", "b", "ab", "ba", "aab", "bb", "abc", ""]
    table = StopTable.build(stops, [piece.encode() for piece in pieces])
    for ids in itertools.product(range(len(pieces)), repeat=4):
        assert first_match(table, list(ids)) == expected_match([pieces[i] for i in ids], stops)


@pytest.mark.parametrize("name", SMALL)
def test_random_tokens_of_a_real_kind_stop_where_their_text_does(name):
    tokenizer = SMALL[name]()
    rng = np.random.default_rng(0)
    table = StopTable.build((STOP, "<<"), tokenizer.bytes_of_ids)
    # Tokens that may be part of the stop string, so that it occurs, and some others.
    parts = tokenizer.encode_continuation("x" + STOP + "Problem:\n\n\n\nProb lem:<<") * 5
    hits = 0
    for _ in range(300):
        ids = rng.choice([*parts, *rng.integers(0, tokenizer.vocab_size, 5)], 30).tolist()
        cut = rng.integers(0, 30)
        ids[cut:cut] = tokenizer.encode_continuation(STOP if rng.random() < 0.5 else "\n\nProb")
        texts = [tokenizer.decode(ids[:n]) for n in range(len(ids) + 1)]
        expected = next((n for n, t in enumerate(texts) if STOP in t or "<<" in t), None)
        assert first_match(table, ids) == expected
        hits += expected is not None
    assert hits > 100


def test_stop_inside_a_token_across_tokens_at_the_start_and_twice():
    pieces = [b"\n", b"Problem", b":", b".\n\n\n", b"x\n\n\nProblem:y", b"\n\n", b"", b"a"]
    table = StopTable.build((STOP,), pieces)
    inside, across = [7, 4, 7], [7, 3, 1, 2]
    assert first_match(table, inside) == 2
    assert first_match(table, across) == 4
    assert first_match(table, [0, 5, 1, 2]) == 4  # at the start
    assert first_match(table, [0, 0, 0, 0, 0, 1, 6, 2]) == 8  # more newlines, a special token
    assert first_match(table, [5, 1, 2, 7]) is None  # two newlines only
    twice = table.states([*across, 7, *across])
    assert twice[3:] == [table.matched] * 6  # absorbing


def test_states_can_be_continued():
    table = StopTable.build(("abc",), [b"a", b"b", b"c"])
    state = table.advance([0, 1])
    assert state not in (table.start, table.matched)
    assert table.advance([2], state) == table.matched
    assert table.advance([], state) == state
    assert table.table.dtype == np.int32


def test_without_stop_strings_nothing_matches():
    table = StopTable.build((), [b"a", b""])
    assert table.table.shape == (1, 2)
    assert table.matched not in table.states([0, 1, 0])


def test_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopTable.build(("",), [b"a"])


def test_find_gives_the_start_of_the_match_that_is_complete_first():
    assert find("a\n\n\nProblem: b\n\n\nProblem:", (STOP,)) == 1
    assert find("a\n\nProblem:", (STOP,)) is None
    assert find("abcdef", ("bcdef", "cd")) == 2
    assert find("abcd", ("cd", "bcd")) == 1
    assert find("abc", ()) is None


@pytest.mark.parametrize("name", ["smollm2", "llama2", "deepseek-llm"])
def test_real_tokenizers_stop_at_the_next_problem(name):
    """DeepSeek's case: a full stop may merge with the newlines, so ids of the stop never occur."""
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    tokenizer = load_tokenizer(data / "tokenizers" / name)
    table = StopTable.build((STOP,), tokenizer.bytes_of_ids)
    for text in ("\nSo it is 5.", "", "\n#### 5", "\nso \\[x=5.\\]", "a "):
        ids = tokenizer.encode_continuation(text + STOP)
        assert first_match(table, ids) == len(ids)
        assert find(tokenizer.decode(ids), (STOP,)) == len(text)
    merged = [i for i, piece in enumerate(tokenizer.bytes_of_ids) if piece.endswith(b".\n\n\n")]
    tail = tokenizer.encode_continuation("Problem:")
    for token in merged:
        assert first_match(table, [token, *tail]) == 1 + len(tail)
