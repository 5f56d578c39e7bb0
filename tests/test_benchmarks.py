"""The benchmark of Monte Carlo values: its predictions by hand, its parts on a policy that can be
listed, its command on a fresh run. Then the benchmarks of speed, at their smallest; no test asserts
a time."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import accelerator, rollouts, scaling, turns, update, value_quality, workload
from benchmarks.engines import vinejax_rollouts
from experiments import configs
from tests.train.enumerable import PROMPT_LENGTH, Exact, setup_of, weights, with_values
from vinejax.config import Architecture, EngineConfig, LedgerOptions
from vinejax.grading import GraderPool
from vinejax.train import folder, truth


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


def draw(setup, graders, count):
    estimates = value_quality.by_rollouts(setup, weights(), graders)
    return truth.draw_states(setup, weights(), graders, count, estimates)


@pytest.fixture(scope="module")
def drawn():
    """Setup, graders' context and 24 states of the policy that can be listed."""
    setup = setup_of(with_values(states="token", k=9))
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        yield setup, graders, draw(setup, graders, 24)


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
    measured = truth.true_value(setup, weights(), graders, states, rollouts)
    for state, value in zip(states, measured, strict=True):
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
    states = draw(replace(setup, config=config), graders, 10**6)
    assert len(states) == 4  # the prompts alone


def test_states_beyond_the_step_cap_are_not_measured(drawn):
    setup, graders, _ = drawn
    config = with_values(states="token", max_step=1)
    states = draw(replace(setup, config=config), graders, 20)
    assert {s.step for s in states} == {0, 1}


@pytest.mark.slow
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


TINY_SHAPE = "--shape=32,1,4,2,8,32,256"


def one_line(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


def test_lists_of_jobs_follow_from_their_seed(tmp_path):
    work = workload.values(trajectories=8, states=5, k=9, seed=0)
    assert work == workload.values(seed=0) != workload.values(seed=1)
    assert len(work.jobs) == 360
    stops = np.array([job.stop for job in work.jobs])
    assert stops.min() >= workload.SHORTEST
    assert stops.max() < work.width
    assert_allclose(stops.mean(), workload.MEAN, rtol=0.1)
    assert all(job.prefix <= work.width for job in work.jobs)
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(work.to_json()))
    assert workload.read(file) == work
    taken = work.take(64)
    assert len(taken.jobs) == 64
    assert taken.jobs[0] == work.jobs[0]
    assert work.take(0) == work
    ordinary = workload.ordinary(64, 8)
    assert len(ordinary.jobs) == 512
    assert len({(job.trajectory, job.prefix) for job in ordinary.jobs}) == 64


def test_jobs_become_trunks_and_numbered_samples():
    jobs = ((4, 3, 9), (2, 5, 8), (4, 3, 7), (4, 6, 6))
    work = workload.Work(tuple(workload.Job(*job) for job in jobs), 10)
    trunks, laid = vinejax_rollouts.lay_out(work, 50)
    assert [len(t) for t in trunks.tokens] == [5, 6]
    assert laid.trunk.tolist() == [1, 0, 1, 1]
    assert laid.sample.tolist() == [0, 0, 1, 0]
    assert laid.max_new_tokens.tolist() == [9, 8, 7, 6]
    assert [len(t) for t in vinejax_rollouts.lay_out(work, 50, least=6)[0].tokens] == [6, 6]


def test_ratios_are_formed_within_a_round():
    rounds = {
        "one": [{"r": 2.0}, {"r": 8.0}, {"r": 3.0}],
        "two": [{"r": 1.0}, {"r": 2.0}, {"r": 3}],
    }
    assert turns.ratio(rounds, "one", "two", lambda run: run["r"]) == [1.0, 2.0, 4.0]


@pytest.mark.slow
def test_rollouts_beside_static_batches(capsys):
    flags = [TINY_SHAPE, "--take=6", "--slots=4", "--rounds=1", "--peer=static", "--json"]
    assert rollouts.main(flags) == 0
    out = one_line(capsys)
    ours, theirs = out["vinejax"], out["static"]
    asked = workload.values().take(6).useful
    for row in (ours, theirs):
        run = row["run"]
        assert run["useful_tokens"] == run["decode_tokens"] == asked
        assert run["compiled"] == 0
        assert run["prefill_tokens"] > 0
        assert row["ideal_steps"] == -(-asked // row["slots"])
        assert row["steps_over_bound"] >= 1
        assert 0 < row["share_of_peak"][1] < 1
    assert ours["run"]["steps"] <= theirs["run"]["steps"]
    assert ours["machine"]["cores"]
    assert ours["versions"]["jax"]
    low, middle, high = out["ratio"]
    assert 0 < low <= middle <= high


@pytest.mark.slow
def test_updates_alone(capsys):
    assert update.main([TINY_SHAPE, "--rows=2", "--width=16", "--rounds=1", "--json"]) == 0
    out = one_line(capsys)
    assert out["vinejax"]["run"]["tokens"] == 32
    assert out["vinejax"]["run"]["compiled"] == 0
    assert np.isfinite(out["vinejax"]["run"]["loss"])
    assert "ratio" not in out


@pytest.mark.slow
def test_scaling(capsys):
    sizes = ["--trajectories=2", "--states=2", "--k=2", "--mean=10", "--slots=4", "--width=32"]
    assert scaling.main([TINY_SHAPE, *sizes, "--doublings=1", "--rounds=1", "--json"]) == 0
    out = one_line(capsys)
    assert set(out["growth"]) == {"trajectories", "steps", "k", "response length", "slots"}
    assert out["growth_of_tokens"]["slots"] == [1]
    base = out["points"]["base"]
    assert base["cost_per_token"] == 1
    assert out["points"]["k x 2"]["useful_tokens"] > base["useful_tokens"]
    assert out["points"]["slots x 2"]["useful_tokens"] == base["useful_tokens"]


@pytest.mark.slow
def test_the_accelerators_script_at_toy_size(tmp_path, capsys):
    file = tmp_path / "out.json"
    assert accelerator.main(["--tiny", "--k=2", f"--out={file}", "--json"]) == 0
    out = one_line(capsys)
    assert out == json.loads(file.read_text())
    phases = out["tiny"]
    assert list(phases) == ["sampling", "scoring", "values", "update"]
    assert all(phase["tokens_per_second"] > 0 for phase in phases.values())
    assert phases["values"]["jobs"] == 4 * 2 * 2
    assert out["device"]["copy_gb_per_second"] > 0


def test_phases_that_come_too_late_are_left_out(capsys):
    assert accelerator.main(["--tiny", "--limit=0", "--json"]) == 0
    assert all("skipped" in phase for phase in one_line(capsys)["tiny"].values())


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        (rollouts, ["--shape=big"], "--shape is 'big'"),
        (rollouts, ["--shape=1,2,3"], "seven numbers"),
        (rollouts, ["--jobs=nowhere.json"], "--jobs is nowhere.json"),
        (rollouts, ["--take=1000"], "1000 jobs are asked for, of a list of 360"),
        (rollouts, ["--ordinary=64"], "--ordinary is '64'"),
        (rollouts, ["--rounds=0", "--peer=none"], "--rounds is 0"),
        (rollouts, ["--peer=tunix"], "--peer_python=PATH is missing"),
        (rollouts, ["--peer=tunix", "--peer_python=nowhere"], "nowhere, which does not run"),
        (rollouts, ["--peer_python=python3"], "--peer is static"),
        (update, ["--width=1"], "--width=1"),
        (scaling, ["--k=0"], "--k is 0"),
        (accelerator, ["--models", "huge"], "--models has 'huge'"),
    ],
)
def test_wrong_usage_of_the_speed_benchmarks_is_refused(script, flags, message, capsys):
    assert script.main(flags) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("script", [rollouts, update])
def test_a_missing_torch_is_named(script, capsys, monkeypatch):
    monkeypatch.setattr(script, "find_spec", lambda name: None)
    peer = "hf-generate" if script is rollouts else "torch"
    assert script.main([f"--peer={peer}"]) == 2
    assert "requirements-parity.txt" in capsys.readouterr().err


def test_an_interpreter_without_tunix_is_named(tmp_path, capsys):
    bare = tmp_path / "python"  # without site-packages
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    assert rollouts.main(["--peer=tunix", f"--peer_python={bare}"]) == 2
    assert f"{bare}, which has no tunix: give" in capsys.readouterr().err
