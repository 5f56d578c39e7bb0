"""MATH's steps on the tokens of small tokenizers: every token has one step, and none is left."""

import bisect

import pytest

from tests.small_tokenizers import SMALL
from tests.tasks.test_math_steps import FAILURES, WORKED
from vinejax import tasks
from vinejax.vine.states import Steps, steps_of_tokens

RESPONSES = ["".join(steps) for steps in WORKED] + FAILURES
PROMPT = "[MATH_TASK] Problem:\nFind $x$.\n\nSolution:"


def on_tokens(name: str, response: str, steps: str = "authors") -> tuple[list[int], Steps]:
    """Characters of the response at which its tokens begin, and its steps in tokens."""
    tokenizer = SMALL[name]()
    _, ids = tokenizer.encode_pair(PROMPT, response)
    assert tokenizer.decode(ids) == response
    starts = tokenizer.char_starts(ids)
    bounds = tasks.get("math", steps=steps).split_steps(response)
    return starts, steps_of_tokens(bounds, starts)


@pytest.mark.parametrize("rule", ["authors", "paper"])
@pytest.mark.parametrize("name", SMALL)
def test_every_token_of_a_response_has_the_step_in_which_it_begins(name, rule):
    for response in RESPONSES:
        starts, steps = on_tokens(name, response, rule)
        bounds = tasks.get("math", steps=rule).split_steps(response)
        assert starts[:1] == [0] * bool(response)
        by_text = [bisect.bisect_right(bounds, start) - 1 for start in starts]
        numbers = {step: number for number, step in enumerate(sorted(set(by_text)))}
        assert steps.of_token.tolist() == [numbers[step] for step in by_text]
        assert steps.count == len(numbers)
        assert (steps.of_token[1:] >= steps.of_token[:-1]).all()


@pytest.mark.parametrize(("name", "moved"), [("byte_level", 1), ("llama_pieces", 0)])
def test_a_boundary_before_newlines_is_inside_a_token_that_has_the_full_stop(name, moved):
    """Byte-level vocabularies merge the two; Llama's pieces do not."""
    first = "\nTom has 5 red pens and gives 3 away."
    starts, steps = on_tokens(name, first + "\n\n\nProblem solved: he has 2 red pens.")
    assert (steps.count, steps.moved) == (2, moved)
    begin = starts[steps.starts[1]]
    assert (begin > len(first)) == bool(moved)
