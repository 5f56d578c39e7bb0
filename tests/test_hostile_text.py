"""Any text, any bytes: stop rules, steps, answers, grades, data files and configurations cope.

Hypothesis makes the texts, of which many are built from what the rules look for.
"""

import contextlib
import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinejax import config as configuration
from vinejax import stop, tasks
from vinejax.config import Config, ConfigError, UserError
from vinejax.tasks import Problem
from vinejax.tasks.rows import Row, local_rows

# What rules look for, and what breaks programs.
PIECES = st.sampled_from(
    [
        *("\n", "\n\n", "####", "#### ", "A: ", "The answer is ", "final answer is $", "$. I hope"),
        *(
            "\\boxed{",
            "}",
            "{",
            "$",
            "$$",
            "\\[",
            "\\]",
            "\\(",
            "\\frac{1}{2}",
            "\\begin{pmatrix}",
            "&",
        ),
        *(
            "<<1+1=2>>",
            "1,000",
            "-3",
            "0/0",
            "1e999",
            "²",
            ". ",
            "?",
            "\r\n",
            "\r",
            "\x00",
            "\x1b[2J",
        ),
        *("\u2028", "\u202e", "\ufeff", "\U0001f600", "e\u0301", "\ufffd", "<|endoftext|>", "</s>"),
        *("Problem:", "\n\n\nProblem:", "# Solution", "3+4=7\n", "7", "__import__('os')"),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=14).map("".join),
    st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace")),
)
STOPS = st.lists(st.one_of(PIECES, st.text(min_size=1, max_size=3)), min_size=1, max_size=4)
NAMES = ("ledger", "gsm8k", "math")


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=8), STOPS, st.data())
def test_tokens_stop_where_their_bytes_do(vocabulary: list[bytes], stops: list[str], data: Any):
    """Tokens are any bytes: halves of characters, and bytes that are no UTF-8 at all."""
    vocabulary = [*vocabulary, *(s.encode()[:2] for s in stops), *(s.encode()[2:] for s in stops)]
    table = stop.StopTable.build(tuple(stops), vocabulary)
    ids = data.draw(st.lists(st.integers(0, len(vocabulary) - 1), max_size=20))
    states, text = table.states(ids), b""
    for token, state in zip(ids, states, strict=True):
        text += vocabulary[token]
        assert (state == table.matched) == any(s.encode() in text for s in stops)


@given(TEXTS, STOPS, STOPS)
def test_what_is_in_front_of_a_stop_string_holds_none(
    text: str, stops: list[str], inside: list[str]
):
    text += "".join(inside) + text
    at = stop.find(text, tuple(stops))
    if at is None:
        assert not any(s in text for s in stops)
    else:
        assert any(text.startswith(s, at) for s in stops)
        assert not any(s in text[:at] for s in stops)


@pytest.mark.parametrize("name", NAMES)
@given(response=TEXTS)
def test_steps_cover_any_response_and_an_answer_is_text_or_none(name: str, response: str):
    task = tasks.get(name)
    steps = task.split_steps(response)
    assert steps[0] == 0
    assert steps[-1] == len(response)
    assert all(a < b for a, b in pairwise(steps))
    answer = task.extract_answer(response)
    assert answer is None or isinstance(answer, str)
    assert isinstance(task.finished(response), bool)


@pytest.mark.parametrize("name", ["ledger", "gsm8k"])
@given(question=TEXTS, gold=TEXTS, response=TEXTS)
def test_any_response_has_a_grade(name: str, question: str, gold: str, response: str):
    """(Both graders of MATH, under their limits: `tests/tasks/test_hostile_answers.py`.)"""
    task = tasks.get(name)
    problem = Problem(id="p", problem=question, solution=gold, answer=gold)
    for grade in (task.grade(problem, response), task.grade_strict(problem, response)):
        assert 0 <= grade <= 1
    assert task.grade(problem, response) == task.grade(problem, response)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "x", "\n" * 10**6, "#### 1\n" * 10**5, "$a$ " * 250_000])
def test_empty_and_enormous_responses(name: str, text: str):
    task = tasks.get(name)
    steps = task.split_steps(text)
    assert steps[0] == 0
    assert steps[-1] == len(text)
    task.extract_answer(text)


ROWS = [{"question": "1+1?", "answer": "2\n#### 2"}, {"question": "x\u2028y", "answer": "#### 3"}]


def written(folder: Path, content: bytes, packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    name = "data.jsonl.gz" if packed else "data.jsonl"
    (folder / name).write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_marks_and_line_ends_change_no_row(
    tmp_path: Path, mark: bytes, ends: str, packed: bool
):
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    written(tmp_path, mark + ends.join([*lines, ""]).encode(), packed)
    assert [row.fields for row in local_rows(tmp_path, "data.jsonl")] == ROWS


def test_lines_that_are_there_twice_are_kept_and_named_by_their_place(tmp_path: Path):
    line = json.dumps(ROWS[0])
    written(tmp_path, f"{line}\n{line}\n".encode())
    found = local_rows(tmp_path, "data.jsonl")
    assert [row.where.rpartition(":")[2] for row in found] == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "packed", "words"),
    [
        ("{}\n".encode("utf-16"), False, "cannot be read"),
        (b'{"question": "\xe9"}\n', False, "cannot be read"),  # one line in another encoding
        (b"[" * 10**5, False, "data.jsonl:1: broken line, not JSON"),
        (b"{}\nnull\n", False, "data.jsonl:2: broken line, not a JSON object"),
        (b"\r\n\n", False, "holds no problem"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, content: bytes, packed: bool, words: str
):
    written(tmp_path, content, packed)
    with pytest.raises(UserError, match=words):
        local_rows(tmp_path, "data.jsonl")


@pytest.mark.parametrize("packed", [False, True])
def test_any_bytes_are_rows_or_a_message(tmp_path: Path, packed: bool):
    random, whole = np.random.default_rng(0), gzip.compress(json.dumps(ROWS[0]).encode() * 20)
    written(tmp_path, b"", packed)
    (file,) = tmp_path.iterdir()
    for _ in range(300):
        content = bytearray(whole if packed else json.dumps(ROWS[0]).encode() + b"\n")
        for _ in range(random.integers(1, 4)):
            content[random.integers(len(content))] = random.integers(256)
        file.write_bytes(content[: random.integers(1, len(content) + 1)])
        said = "data.jsonl"
        try:
            rows = local_rows(tmp_path, "data.jsonl")
        except UserError as error:
            rows, said = [], str(error)
        assert "data.jsonl" in said
        assert all(isinstance(row, Row) for row in rows)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=4,
)
FIELDS = [name for name, _ in configuration.flatten(Config())]


@settings(max_examples=3 * settings().max_examples)
@given(st.dictionaries(st.sampled_from([*FIELDS, "sampling", "nonsense"]), VALUES, max_size=3))
def test_any_json_is_a_configuration_or_a_message(changes: dict[str, Any]):
    data: dict[str, Any] = {}
    for name, value in changes.items():
        *groups, last = name.split(".")
        inner = data
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                return
        inner[last] = value
    with contextlib.suppress(ConfigError):
        configuration.from_dict(data).validate()


@pytest.mark.parametrize("name", ["", "a/b", "../../etc", "a\x00b", "a\nb", "\x1b[2J", "n" * 101])
def test_names_that_are_no_part_of_a_folder_name_are_refused(name: str):
    with pytest.raises(ConfigError, match=r"name is .* without '/'"):
        configuration.from_dict({"name": name, "policy": {"path": "x"}}).validate()


@pytest.mark.parametrize("name", ["..", ".", "tiny", "größe", "a b", "-rf", "~"])
def test_names_that_stay_in_the_folder_are_allowed(name: str):
    found = configuration.from_dict(
        {"name": name, "task": {"options": {}}, "policy": {"path": "x"}}
    )
    found.validate()
