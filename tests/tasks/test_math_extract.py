r"""Extraction of MATH answers: the authors' rules one by one, and their order."""

import time

import pytest

from vinejax.tasks.math.extract import LONGEST, answers

COMMAS = "List all solutions, separated by commas."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The final answer is $9$. I hope it is correct. \\boxed{8}", ["9"]),
        ("\\boxed{2}, then \\boxed{3}", ["2", "3"]),
        ("\\boxed{\\frac{1}{\\sqrt{2}}}", ["\\frac{1}{\\sqrt{2}}"]),
        ("\\boxed{2 + \\boxed{3}}", ["3"]),
        ("\\boxed{50}% of it", ["50}"]),
        ("\\boxed{7 and 12", []),
        ("\\boxed 7", []),
        ("\\boxed{}", [""]),
        ("he answer is 5. No: the answer is 6.\nNot 7", ["6"]),
        ("12\n```output\n17\n```\nmore 18", ["17"]),
        ("12\n```output\n\n```\nmore 18", ["18"]),
        ("1,042 dollars, that is -0.5 or .25", ["0.25"]),
        ("We get 1,042 dollars", ["1042"]),
        ("between 3-4", ["-4"]),
        ("I do not know.", []),
        ("", []),
    ],
)
def test_first_rule_that_fits(text, expected):
    assert answers(text, "Find it.") == expected


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("  5. ", "5"),
        (":5", "5"),
        ("5/", "5"),
        ("5\n6", "5"),
        ("1\\!000", "1000"),
        ("\\text{east}", "east"),
        ("\\dfrac{1}{2}", "\\frac{1}{2}"),
        ("\\left(1,2\\right)", "(1,2)"),
        ("12\\text{ cm}", "12"),
        ("12\\text{ cm }and \\text{ mm}", "12"),
        ("12\\text{ cm}^2", "12\\text{cm}^2"),
        ("90^\\circ", "90"),
        ("90^{\\circ}", "90"),
        ("5{cm}^2", "5"),
        ("5 t", "5"),
        ("cat", "cat"),
        ("\\$20", "20"),
        ("x\\in[1,2]", "[1,2]"),
        ("20\\%", "20%"),
        ("a .5", "a0.5"),
        ("\\frac{.5}{2}", "\\frac{0.5}{2}"),
        ("2\\cdot 3", "23"),
        ("infinity", "\\infty"),
        ("-inf", "-\\infty"),
        ("\\infty - inf", "\\infty-inf"),
        ("\\mathbf{3}", "{3}"),
        ("5\\mbox{ apples}", "5"),
        ("3+4j", "3+4i"),
        ("i+j", "i+j"),
        ("5.00", "5"),
        ("2.000x", "2x"),
        ("5.10", "5.10"),
        ("0.50", "0.50"),
        (".5", "0.5"),
        ("\\sqrt3", "\\sqrt{3}"),
        ("2\\sqrt 3", "2\\sqrt{3}"),
        ("\\sqrt 3 + 1", "\\sqrt3+1"),
        ("\\tan 30", "\\tan{30}"),
        ("\\frac12", "\\frac{1}{2}"),
        ("\\frac1{72}", "\\frac{1}{72}"),
        ("\\frac{72}1", "\\frac{72}1"),
        ("\\frac12+\\frac", "\\frac12+\\frac"),
        ("1/2", "\\frac{1}{2}"),
        ("sqrt2/2", "\\frac{sqrt2}{2}"),
        ("1/2/3", "1/2/3"),
        ("01/2", "01/2"),
        ("x/2", "x/2"),
        ("7,.\\", "7"),
        ("it's", "it's"),
    ],
)
def test_clean_up(raw, clean):
    assert answers(f"\\boxed{{{raw}}}", "Find it.") == [clean]


def test_lists_are_split_where_the_question_says_so():
    assert answers("\\boxed{1, 2,3}", "Find it.") == ["1,2,3"]
    assert answers("\\boxed{1, 2,3}", COMMAS) == ["1", "2", "3"]
    assert answers("\\boxed{(1,2),(3,4)}", COMMAS) == ["(1,2),(3,4)"]
    assert answers("\\boxed{2 \\text{ and } 5}", "Find it.") == ["2", "5"]
    assert answers("\\boxed{2 \\text{ and } 5}", COMMAS) == ["2\\text{and}5"]


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150_000,
        "\\boxed{" + "{" * 1_000_000,
        "\\boxed{" + "\\text{" * 160_000 + "}",
        "\\boxed{" + "," * 1_000_000 + "x}",
        "\\boxed{" + "\\mbox{" * 1_600 + "}",
        "\\boxed{" + "0" * (LONGEST - 1) + "}",
        "1" * 1_000_000,
        "-" * 1_000_000,
        "he answer is" * 80_000,
        "```output" * 100_000,
    ],
    ids=lambda text: text[:16],
)
def test_a_million_characters_take_no_time(text):
    started = time.process_time()
    answers(text, COMMAS)
    assert time.process_time() - started < 3


def test_an_answer_that_is_too_long_is_left_alone():
    long = "\\!" * LONGEST
    assert answers(f"\\boxed{{{long}}}", "Find it.") == [long]
