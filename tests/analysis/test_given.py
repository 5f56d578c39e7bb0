"""Values of given texts: those that training finds for the same trajectories; the exact ones."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import BOS, CONFIG, PARAMS, STOP, Exact, iterate, setup_of, with_values
from vinejax.analysis import given, values_of
from vinejax.arrays import Finish
from vinejax.config import ConfigError, UserError
from vinejax.grading import GraderPool
from vinejax.train import credit

TOKENS = with_values(states="token")  # a state at every token: more of them


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The enumerable policy in place of one from disk, and grading without other processes."""

    def prepare(config):
        replace(config, policy=replace(config.policy, path="model")).validate()
        return replace(setup_of(), config=config), PARAMS

    monkeypatch.setattr(given, "prepare_policy", prepare)
    monkeypatch.setattr(given, "graders_of", lambda c: GraderPool(c.task.name, {}, workers=0))


@pytest.fixture(scope="module")
def sampled():
    """An iteration's trajectories, and their credit as training has it."""
    return iterate(setup_of(TOKENS))


def texts_of(batch):
    return [(p, r.text) for p, r in zip(batch.problems, batch.responses, strict=True)]


def test_values_and_advantages_are_those_of_training(sampled):
    (batch, found), compared = sampled, 0
    for m, one in enumerate(values_of(TOKENS, texts_of(batch))):
        assert one.problem is batch.problems[m]
        assert "".join(one.steps) == batch.responses[m].text
        assert_allclose(one.advantages.sum(), one.reward - one.values[0], atol=1e-6)
        # A text is taken to have ended by itself, and nothing is left in it of a token for the
        # beginning of a sequence, should one have been sampled.
        if BOS in batch.responses[m].tokens or batch.responses[m].finish != Finish.EOS:
            continue
        assert len(one.steps) == batch.states[m].count
        assert_array_equal(one.values, found.values[m])
        assert_array_equal(one.advantages, found.step_advantages[m])
        assert one.reward == batch.reward[m]
        compared += len(one.steps) > 1
    assert compared > 5


def test_values_come_close_to_the_exact_ones(sampled):
    batch, _ = sampled
    exact, k = Exact(setup_of()), 256
    plain = [m for m, r in enumerate(batch.responses) if r.finish == Finish.EOS]
    chosen = [m for m in plain if batch.states[m].count > 1 and BOS not in batch.tokens[m][1:]]
    chosen = chosen[:6]
    assert len(chosen) == 6
    found = values_of(TOKENS, [texts_of(batch)[m] for m in chosen], k=k)
    for m, one in zip(chosen, found, strict=True):
        for start, value in zip(batch.states[m].starts, one.values, strict=True):
            response = tuple(batch.responses[m].tokens[:start].tolist())
            mean, square = exact.moments(batch.problems[m].id, response)
            assert abs(value - mean) < 4 * np.sqrt(max(square - mean**2, 0) / k) + 1e-6


def test_nothing_of_the_given_trajectories_counts_as_a_sample(sampled):
    """They may come from anywhere: pooling and skipping are for the policy's own."""
    batch, _ = sampled
    cheap = with_values(pool=True, budget="remaining", min_samples=2, plan="skip:2", context=6)
    plain = with_values(budget="remaining", context=6)
    texts = texts_of(batch)[:6]
    for one, other in zip(values_of(cheap, texts), values_of(plain, texts), strict=True):
        assert_array_equal(one.values, other.values)


def test_the_trunks_are_not_prefilled_again(sampled, monkeypatch: pytest.MonkeyPatch):
    counters, original = [], credit.assign

    def assign(*args):
        found = original(*args)
        counters.append(found.counters)
        return found

    monkeypatch.setattr(credit, "assign", assign)
    values_of(CONFIG, texts_of(sampled[0])[:5])
    assert [c.tokens_prefilled for c in counters] == [0]
    assert counters[0].tokens_sampled > 0


def test_a_stop_string_ends_a_response_and_an_empty_one_has_one_state():
    problem = setup_of().train[0].problem
    stopped, plain, empty = values_of(
        CONFIG, [(problem, f"0{STOP}111"), (problem, "0"), (problem, "")]
    )
    assert (stopped.steps, stopped.reward) == (["0"], 1.0)
    assert_array_equal(stopped.values, plain.values)
    assert (empty.steps, empty.reward) == ([""], 0.5)
    assert_array_equal(empty.values, plain.values)  # of the prompt
    assert_allclose(empty.advantages, 0.5 - empty.values)
    assert values_of(CONFIG, []) == []


@pytest.mark.parametrize(
    ("texts", "k", "message"),
    [
        (["0", "10101010"], None, "trajectory 1 has 10 tokens.* values.context is 7: raise it"),
        (["0"], 0, "values.k is 0"),
        (["2"], None, "trajectory 0: "),
    ],
)
def test_bad_input_is_refused(texts, k, message):
    problem = setup_of().train[0].problem
    with pytest.raises(UserError, match=message):
        values_of(CONFIG, [(problem, text) for text in texts], k=k)


def test_two_problems_must_not_have_one_id():
    problem = setup_of().train[0].problem
    with pytest.raises(UserError, match="trajectory 1: another problem has the id '0', too"):
        values_of(CONFIG, [(problem, "0"), (replace(problem, answer="1"), "0")])
    assert issubclass(ConfigError, UserError)
