"""The benchmark of Monte Carlo values: its predictions by hand, its parts on a policy that can be
listed, its command on a fresh run."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import value_quality
from experiments import configs
from tests.train.enumerable import PROMPT_LENGTH, Exact, setup_of, weights, with_values
from vinejax.config import Architecture, EngineConfig, LedgerOptions
from vinejax.grading import GraderPool
from vinejax.train import folder


def test_predicted_error_by_hand():
    def one(p, k, rollouts):
        return value_quality.predicted_error(np.array([p]), k, rollouts)

    assert one(0.0, 9, 256) == one(1.0, 9, 256) == 0
    # One toss each: they differ in half of the cases.
    assert_allclose(one(0.5, 1, 1), 0.5)
    # X/2 is 0, 1/2, 1 in 1/4, 1/2, 1/4 of the cases; its distance to either Y has the mean 1/2.
    assert_allclose(one(0.5, 2, 1), 0.5)
    # Without error of the truth: E |X - p| of one toss is 2 p (1 - p).
    assert_allclose(one(0.3, 1, 10**4), 0.42, atol=0.005)
    mixed = value_quality.predicted_error(np.array([0.0, 0.5, 0.5, 1.0]), 1, 1)
    assert_allclose(mixed, 0.25)


def test_estimates_that_are_binomial_have_the_predicted_error_and_correlation():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.5, 20000)
    estimates, truth = rng.binomial(9, p) / 9, rng.binomial(256, p) / 256
    out = value_quality.compare(estimates, truth, np.zeros(len(p), int), 9, 256)
    assert_allclose(out["ratio"], 1, atol=0.02)
    assert_allclose(out["correlation"], out["correlation_predicted"], atol=0.005)
    shifted = value_quality.compare((estimates + 0.3) % 1, truth, np.zeros(len(p), int), 9, 256)
    assert shifted["ratio"] > 1.3


def test_numbers_by_hand():
    truth, estimates = np.array([0.0, 0.5, 1.0, 0.5]), np.array([0.04, 0.5, 0.9, 0.8])
    out = value_quality.compare(estimates, truth, np.array([0, 0, 2, 2]), 9, 256)
    assert_allclose(out["mae"], 0.11)
    assert_allclose(out["within_0.05"], 0.5)
    assert_allclose(out["mae_constant"], 0.25)
    assert out["states_by_step"] == [2, 0, 2]
    assert_allclose([out["mae_by_step"][0], out["mae_by_step"][2]], [0.02, 0.2])
    assert out["mae_by_step"][1] is None


def test_values_that_do_not_vary_have_no_correlation():
    out = value_quality.compare(np.zeros(3), np.zeros(3), np.arange(3), 9, 256)
    assert out["mae"] == out["mae_predicted"] == out["mae_constant"] == 0
    assert out["ratio"] is out["correlation"] is out["correlation_predicted"] is None
    assert "ratio                    -" in value_quality.table({"run": "r", "seed": 0} | out)


@pytest.fixture(scope="module")
def drawn():
    """Setup, graders' context and 24 states of the policy that can be listed."""
    setup = setup_of(with_values(states="token", k=9))
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        yield setup, graders, value_quality.draw_states(setup, weights(), graders, 24)


def test_states_are_distinct_and_before_the_end(drawn):
    _, _, states = drawn
    assert len(states) == 24
    assert len({(s.problem.id, s.tokens.tobytes()) for s in states}) == 24
    assert all(s.prompt_length == PROMPT_LENGTH for s in states)
    # With a state at every token the index counts response tokens.
    assert [s.step for s in states] == [len(s.tokens) - PROMPT_LENGTH for s in states]
    ninths = np.array([s.estimate for s in states]) * 18  # rewards are 0, 1/2 and 1
    assert_allclose(ninths, np.round(ninths), atol=1e-5)


def test_the_truth_is_the_exact_value_up_to_its_own_error(drawn):
    setup, graders, states = drawn
    exact, rollouts = Exact(setup), 128
    truth = value_quality.true_value(setup, weights(), graders, states, rollouts)
    for state, value in zip(states, truth, strict=True):
        response = tuple(state.tokens[PROMPT_LENGTH:].tolist())
        mean, square = exact.moments(state.problem.id, response)
        assert abs(value - mean) < 4 * np.sqrt((square - mean**2) / rollouts) + 1e-6


def test_measuring_follows_from_the_seed(drawn):
    setup, graders, _ = drawn
    results = [
        value_quality.measure(replace(setup, config=config), weights(), graders, 24, 64)
        for config in (setup.config, setup.config, replace(setup.config, seed=1))
    ]
    assert results[0] == results[1] != results[2]
    assert results[0]["states"] == sum(results[0]["states_by_step"]) == 24
    assert results[0]["ratio"] < 1.3
    json.dumps(results[0], allow_nan=False)


def test_all_states_are_measured_if_there_are_fewer(drawn):
    setup, graders, _ = drawn
    config = replace(setup.config, sampling=replace(setup.config.sampling, max_new_tokens=1))
    states = value_quality.draw_states(replace(setup, config=config), weights(), graders, 10**6)
    assert len(states) == 4  # the prompts alone


def test_states_beyond_the_step_cap_are_not_measured(drawn):
    setup, graders, _ = drawn
    config = with_values(states="token", max_step=1)
    states = value_quality.draw_states(replace(setup, config=config), weights(), graders, 20)
    assert {s.step for s in states} == {0, 1}


def test_the_command_measures_a_fresh_run(tmp_path, capsys):
    config = configs.get("tiny")
    options = LedgerOptions(length=2, sft_size=0, train_size=40, validation_size=8, test_size=8)
    config = replace(
        config,
        prompts=4,
        samples=4,
        policy=replace(config.policy, architecture=Architecture(hidden=16, layers=1, ffn=16)),
        engine=EngineConfig(rows=4, slots=4, ring=16, chunk=16),
        task=replace(config.task, options=options),
        sampling=replace(config.sampling, max_new_tokens=8),
        update=replace(config.update, minibatch=16, microbatch=16),
        sft=replace(config.sft, epochs=0),
        grading=replace(config.grading, workers=1),
    )
    folder.write(tmp_path / "run", config)
    before = sorted(tmp_path.rglob("*"))
    flags = ["--states=6", "--k=2", "--truth=4", "--json"]
    assert value_quality.main([f"--run={tmp_path / 'run'}", *flags]) == 0
    out = json.loads(capsys.readouterr().out)
    assert (out["states"], out["k"], out["truth"], out["seed"]) == (6, 2, 4, 0)
    assert out["mae"] == 0  # random letters are never right
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--run=DIR is missing"),
        (["--run=nowhere"], "nowhere, which holds no run"),
        (["--run=nowhere", "--k=0"], "--k is 0"),
        (["--run=nowhere", "--kk=3"], "--kk"),
    ],
)
def test_wrong_usage_is_refused(flags, message, capsys):
    assert value_quality.main(flags) == 2
    assert message in capsys.readouterr().err
