r"""MATH's steps. The authors' boundaries (commit efe7228) are what their own function returned."""

import bisect
import gzip
import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.shared_data import REASON, shared_data
from vinejax import tasks
from vinejax.tasks.math.formulas import mask
from vinejax.tokenizer import load_tokenizer
from vinejax.vine.states import steps_of_tokens

WORKED = [
    [
        "\nTo find the total, we first compute the cost of the red pens.",
        " Since each pen costs $2$ dollars, the red pens cost $2 \\cdot 5 = 10$ dollars.",
        " Then the blue pens cost $3 \\cdot 4 = 12$ dollars.",
        " The total is $10+12=\\boxed{22}$ dollars.\n",
    ],
    [
        "\nWe have \\begin{align*}",
        "\n(x+1)^2 &= x^2+2x+1 \\\\",
        "\n&= 9.",
        "\n\\end{align*}",
        "\nHence $x+1=\\pm 3$, so $x = 2$ or $x=-4$.",
        " The larger root is $\\boxed{2}$.",
    ],
    [
        "\nLet\n\\[",
        "\nx = 1,",
        "\n\\]\nthen we get $y=2$ from the other equation given.",
    ],
    [
        "\n[asy]\ndraw((0,0)--(1,1));",
        "\n[/asy]",
        "\nThe picture shows a diagonal of length $\\sqrt{2}$.",
    ],
    [
        "\nExpanding the left side gives $(a+b+c)(a-b+c)=",
        "a^2+ac-ab+ab+bc-b^2+ac-bc+c^2 = a^2+2ac+c^2-b^2=(a+c)^2-b^2$.",
    ],
    [
        "\nBecause the first train leaves the station at noon and",
        " the second train leaves the same station two hours later,",
        " the distance between them to start with is exactly one hundred and twenty miles.",
    ],
    [
        "\nWe get $f(x) = 3x + 2$, and $g(x) = 5x$ so that the composition $f(g(x)) =",
        " 15x + 2$ and hence the value is \\boxed{17}.",
    ],
    [
        "\nFirst $a.$",
        " long enough. Second $b$ ok thing here. $$x=5.$$",
        " More text here then.",
    ],
    [
        "\nPut all of it. Then add a bit of it. Next we go on.",
    ],
    [
        "\nThe sum is $5$. $x$ is then found by subtracting it from ten.",
        " Thus we are done here now.",
    ],
    [
        "\nLet $x$ be the number.",
        "\nThen $2x = 10$.\nSo $x=\\boxed{5}$.",
    ],
    [
        "\nThe line goes from the first of the two points on to",
        " to the other one of these points which is where it ends at last",
    ],
    [
        "\nWe know that\n$$f(1)=2.$$\nThus $\\boxed{2}$.",
    ],
    [
        "\nLine one with enough characters",
        "\n\n\nLine two with enough characters",
    ],
    [
        "\nFirst sentence is here and fine.",
        "\nx=2\ny=3\nThus the answer we want is here: $\\boxed{5}$.\n\n",
    ],
    [],
]

# The authors' function raises on these; here each is one step.
FAILURES = [
    "\nThe answer is 5.",
    "\n\\boxed{5}",
    "\n$\\boxed{5}$",
    "\n$5$.",
    "\n",
    "\nFirst, rem",
    "\nWe have\n\\begin{align*}\nx &= 2 \\text{ if $y$ is odd}\n\\end{align*}\nand so on for y.",
    "\nThere are three:\n\\begin{itemize}\n\\item $x=1$\n\\item \\(x=2\\)\n\\end{itemize}\nWe add.",
    "\nIn the two cases \\begin{cases} 1 & \\(x > 0\\) \\\\ 0 & else \\end{cases} it holds.",
    # Nested only in what is left behind a cut: from the `$$` that closed to the next `$`.
    "\nWe look at the sum of all of these products once more because it helps us with what is left "
    "of this problem, in which $$(p+q+r+s)(t+u+v)=pt+pu+pv+qt+qu+qv+rt+ru$$goes into the place of "
    "the three other letters in \\[3abc\\]so that $abc$ is 5.",
    "\nHe pays 5$ for it, and with \\[x = 3,\\] he pays 10$ for all that there is.",
]
# Nested, and not a failure, or short, and not a failure.
NO_FAILURES = [
    "\nWe know \\[ \\text{$x$ is at most five} \\] and so it is.",
    "\nA table: \\begin{tabular}{cc} $a$ & $b$ \\end{tabular} of two.",
    '\n[asy] label("$A$", (0,0)); [/asy] is the picture.',
    "\n$x=5.$",
    "",
]

OPENINGS = ["$", "$$", "\\(", "\\[", "\\begin{a}", "\\begin{bc*}", "\\begin{tabular}", "[asy]"]
CLOSINGS = ["$$.", ".$", "\\)", "\\]", ".\\]", "\\end{a}", "\\end{bc*}", "\\end{tabular}", "[/asy]"]
TEXT = [
    "\n",
    " ",
    ". ",
    ". So ",
    "x",
    ",",
    " and ",
    " to ",
    ": ",
    "=",
    "+",
    "\\equiv ",
    "\\",
    "\\$",
]
TEXT += ["\\\\[2pt]", "}", "{", "Dr. ", "of it. ", "\ufffc", "é", "\u2028", "some words of text "]
responses = st.lists(st.sampled_from(OPENINGS + CLOSINGS + TEXT), max_size=60).map("".join)


@pytest.fixture
def authors():
    return tasks.get("math")


@pytest.fixture
def paper():
    return tasks.get("math", steps="paper")


def split(task, response: str) -> list[str]:
    return [response[begin:end] for begin, end in itertools.pairwise(task.split_steps(response))]


@pytest.mark.parametrize("steps", WORKED)
def test_worked_examples(authors, steps):
    assert split(authors, "".join(steps)) == steps
    assert authors.step_failures == 0


@pytest.mark.parametrize("response", FAILURES)
def test_failures_are_one_step_and_counted(authors, response):
    assert split(authors, response) == [response]
    assert authors.step_failures == 1
    authors.split_steps(response)
    assert authors.step_failures == 2
    assert tasks.get("math").step_failures == 0


@pytest.mark.parametrize("response", NO_FAILURES)
def test_what_looks_like_a_failure_and_is_none(authors, response):
    assert "".join(split(authors, response)) == response
    assert authors.step_failures == 0


def test_the_same_formula_twice_is_cut_once(authors):
    formula = "$$\na = b + c\nd = e + f\n$$"
    response = f"\nFirst we look at {formula} and again at {formula} for a while."
    first = response.index(formula)
    second = response.index(formula, first + 1)
    cuts = authors.split_steps(response)[1:-1]
    assert [cut for cut in cuts if cut < second] == [first + 2, first + 12, first + 22]
    assert not [cut for cut in cuts if cut >= second]


def test_a_mask_counts_as_60_characters(authors):
    """The comma that halves the masked text; by the text's own length it would be the first."""
    first, second = (
        "\nNow we take the first half of all these numbers,",
        " then we take its other half,",
    )
    rest = " and we look for $x$ and $y$ and $z$ in the two."
    assert abs(len(rest + second) - len(first)) < abs(len(rest) - len(first + second))
    assert split(authors, first + second + rest) == [first + second, rest]


def test_a_line_break_with_a_distance_opens_no_formula(paper):
    first = "\nWe write this down first \\\\[2pt] and then continue."
    second = " Then we write the second line of it all."
    assert split(paper, first + second) == [first, second]


@given(responses)
@example("\n" * 50)
@example("$" * 51)
def test_steps_of_any_text_join_to_the_text(response):
    for rule in ("authors", "paper"):
        bounds = tasks.get("math", steps=rule).split_steps(response)
        assert bounds[0] == 0
        assert bounds[-1] == len(response)
        assert all(begin < end for begin, end in itertools.pairwise(bounds))
        assert all(type(bound) is int for bound in bounds)


@given(st.text(st.sampled_from("$\\[]()\n .,=+Aand{}"), max_size=300))
def test_steps_of_random_signs_join_to_the_text(response):
    for rule in ("authors", "paper"):
        bounds = tasks.get("math", steps=rule).split_steps(response)
        assert bounds == sorted({0, *bounds, len(response)})


def formulas_cut(response: str, bounds: list[int]) -> list[int]:
    return [b for b in bounds if any(begin < b < end for begin, end in mask(response).spans)]


@given(responses)
def test_the_rule_of_the_paper_cuts_no_formula(response):
    assert not formulas_cut(response, tasks.get("math", steps="paper").split_steps(response))


def test_the_rule_of_the_paper_on_the_worked_examples(paper):
    for steps in WORKED:
        response = "".join(steps)
        assert not formulas_cut(response, paper.split_steps(response))
    display = "".join(WORKED[1])
    assert split(paper, display) == ["".join(WORKED[1][:4]), *WORKED[1][4:]]
    assert split(paper, "".join(WORKED[5])) == WORKED[5]
    assert split(paper, "".join(WORKED[4])) == ["".join(WORKED[4])]


@pytest.mark.parametrize("opening", ["\\[", "\\(", "$$", "\\begin{align*}", "[asy]", "$"])
def test_the_rule_of_the_paper_leaves_a_broken_off_formula_whole(paper, opening):
    whole = "\nWe look at the first of the two equations now."
    rest = f" It is {opening} f(a, b) + f(c, d) = f(a, d) + f(c, b), g(a, b) + g(c, d) = g(a, d)"
    assert split(paper, whole + rest) == [whole, rest]


def test_the_rule_of_the_paper_never_fails(paper):
    for response in FAILURES:
        assert "".join(split(paper, response)) == response
    assert paper.step_failures == 0


@pytest.mark.parametrize(
    "response",
    [
        "$" * 5_000,
        "$x$ " * 5_000,
        "a $ b\\$ " * 2_500,
        "$$" * 10_000,
        "[asy]" * 4_000,
        "\\begin{a}" * 2_200,
        "\\begin{" * 2_800 + "}",
        "".join(f"\\begin{{n{number}}}" for number in range(1_700)),
        "\\(" * 10_000,
        "\n" * 20_000,
        "$$\\begin{a}" + "\n" * 20_000 + "$$",
        "$" + "a\n" * 10_000 + "$",
        "ab\n" * 6_600,
        "a," * 10_000,
        "$" + "x=" * 10_000 + "$",
        "x" * 15_000 + "+" * 5_000,
        "$" + "y" * 15_000 + "$" + " so, we" * 600,
        ". " * 10_000,
        "." + " " * 20_000,
        " and" * 5_000,
        "So $x=1.$ " * 2_000,
        "$a\nb$ and " * 2_200,
    ],
    ids=lambda text: f"{text[:12]!r}",
)
def test_long_responses_of_one_kind(response):
    """Each takes a tenth of a second at most; a quadratic expression would take minutes."""
    for rule in ("authors", "paper"):
        bounds = tasks.get("math", steps=rule).split_steps(response)
        assert (bounds[0], bounds[-1]) == (0, len(response))


@pytest.fixture(scope="module")
def data():
    folder = shared_data()
    if folder is None or not (folder / "oracles").is_dir():
        pytest.skip(REASON)
    return folder


@pytest.fixture(scope="module")
def oracle(data):
    with gzip.open(data / "oracles" / "math_steps.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_real_responses_are_cut_where_the_authors_cut_them(authors, oracle):
    assert len(oracle) == 500
    failures = 0
    for row in oracle:
        response, expected = row["response"], row["boundaries"]
        failures += expected is None
        assert authors.split_steps(response) == (expected or [0, len(response)]), row["source"]
        assert authors.step_failures == failures
    assert failures == 5


def test_the_rule_of_the_paper_cuts_no_formula_of_real_responses(paper, authors, oracle):
    cut_by_authors = 0
    for row in oracle:
        response = row["response"]
        assert not formulas_cut(response, paper.split_steps(response)), row["source"]
        cut_by_authors += bool(formulas_cut(response, authors.split_steps(response)))
    assert cut_by_authors > 100


REAL = ("llama2", "deepseek-llm")


@pytest.mark.parametrize("name", REAL)
def test_a_boundary_inside_a_token_moves_to_its_end(data, authors, name):
    r"""Both vocabularies have a token `)=\\`, in which the authors cut behind `=`."""
    steps = [
        "\nThe sum of the two areas is $(a+b+c+d+e+f+g)(a-b+c-d+e-f+g)(x+y+z)=",
        "\\frac{(p+q+r+s)(t+u+v+w)}{2}\\cdot\\frac{k}{3}$ as said.",
    ]
    response = "".join(steps)
    assert split(authors, response) == steps
    tokenizer = load_tokenizer(data / "tokenizers" / name)
    prompt = "[MATH_TASK] Problem:\nQ\n\nSolution:"
    _, starts = tokenizer.encode_with_offsets(prompt + response)
    starts = [start - len(prompt) for start in starts if start >= len(prompt)]
    tokens = steps_of_tokens(authors.split_steps(response), starts)
    assert (tokens.count, tokens.moved) == (2, 1)
    begin = starts[tokens.starts[1]]
    assert response[begin - 3 : begin] == ")=\\"


@pytest.fixture(scope="module")
def solutions(data):
    """1,000 prompts and responses."""
    task = tasks.get("math", path=str(data))
    return [(task.prompt(p), task.target(p)) for p in task.load("train")[:1000]]


@pytest.mark.parametrize("name", REAL)
def test_every_token_of_real_solutions_has_one_step(data, authors, solutions, name):
    tokenizer = load_tokenizer(data / "tokenizers" / name)
    inner = moved = 0
    for prompt, response in solutions:
        bounds = authors.split_steps(response)
        _, starts = tokenizer.encode_with_offsets(prompt + response)
        starts = [start - len(prompt) for start in starts if start >= len(prompt)]
        assert starts[0] == 0  # the tokens cover the response
        steps = steps_of_tokens(bounds, starts)
        by_text = [bisect.bisect_right(bounds, start) - 1 for start in starts]
        used = {step: number for number, step in enumerate(sorted(set(by_text)))}
        assert steps.of_token.tolist() == [used[step] for step in by_text]
        assert steps.count == len(used)
        inner, moved = inner + len(bounds) - 2, moved + steps.moved
    assert 0.010 < moved / inner < 0.014  # 66 and 71 of 5,453
