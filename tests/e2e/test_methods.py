"""Each method through the same command: what it reports, and that a killed run goes on exactly."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from experiments import run
from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run, state
from vinejax.report import read_rollouts

FAST = {"sft__epochs": 0, "evaluation__problems": 4, "evaluation__test_problems": 4}
REINFORCE = "examples.reinforce:Reinforce"
OFFLINE = "tests.e2e.methods:Shrink"
METHODS = ["vineppo", "ppo", "grpo", "rloo", REINFORCE]

# In every line of a method that updates in each iteration.
SHARED = {
    *("reward", "pass_at_1", "response_tokens", "response_tokens_p95", "truncated_share"),
    *("no_answer_share", "error_share", "grading_errors", "advantage_spread", "entropy"),
    *("zero_advantage_share",),
    *("kl_k1", "kl_k3", "approx_kl", "ratio_max", "clip_fraction", "grad_norm", "learning_rate"),
    *("sampler_scorer_gap", "sampler_scorer_gap_max", "kept_mass", "slot_utilisation"),
    *("tokens_prefilled", "tokens_sampled", "tokens_scored", "tokens_trained"),
}
VINES = {"states", "rollouts", "value_stderr", "tokens_sampled_values", "slot_utilisation_values"}
CRITIC = {
    *("value_loss", "value_clip_fraction", "value_explained_variance", "critic_grad_norm"),
    *("critic_learning_rate", "tokens_trained_critic", "tokens_scored_critic"),
}
OWN = {"vineppo": VINES | {"value"}, "ppo": CRITIC | {"value"}}


def flags(out: Path, method: str, **changes: object) -> list[str]:
    return runs.flags(out, **FAST | {"algorithm": method} | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An uninterrupted run of each method."""
    root = tmp_path_factory.mktemp("methods")
    found = {name: root / name.rpartition(":")[2] for name in (*METHODS, OFFLINE)}
    for name, out in found.items():
        runs.train(*flags(out, name))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_method_reports_what_all_share_and_what_is_its_own(
    finished: dict[str, Path], method: str
):
    lines = runs.metrics(finished[method])
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    own = OWN.get(method, set())
    for line in lines:
        assert line.keys() >= SHARED | own
        assert not line.keys() & ((VINES | CRITIC | {"value"}) - own)
        assert None not in line.values()  # no NaN
    record = read_rollouts(finished[method], 1)[0]
    assert ("values" in record) == bool(own)
    assert len(record["advantages"]) == len(record["state_starts"])


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_begin_with_the_same_episodes_and_then_differ(
    finished: dict[str, Path], method: str
):
    first, other = (read_rollouts(finished[name], 1) for name in (method, "vineppo"))
    assert [r["tokens"] for r in first] == [r["tokens"] for r in other]
    last, other = (read_rollouts(finished[name], 4) for name in (method, "vineppo"))
    assert method == "vineppo" or [r["tokens"] for r in last] != [r["tokens"] for r in other]
    assert runs.summary(finished[method])["episodes"] == 4 * 8


def test_a_run_says_what_each_phase_cost(finished: dict[str, Path]):
    summary = json.loads((finished["ppo"] / "summary.json").read_text())
    lines = runs.metrics(finished["ppo"])
    for name in ("tokens_sampled", "tokens_scored", "tokens_trained", "tokens_trained_critic"):
        assert summary[name] == sum(line[name] for line in lines) > 0
    phases = summary["seconds_by_phase"]
    assert phases.keys() >= {"trajectories", "scoring", "values", "update", "critic", "iteration"}
    assert summary["tokens_trained"] == 2 * summary["tokens_trained_critic"]  # actor and critic


@pytest.mark.parametrize("method", ["ppo", REINFORCE, OFFLINE])
def test_a_run_goes_on_from_the_state_of_its_method(
    finished: dict[str, Path], tmp_path: Path, method: str
):
    """As if it had been killed in the third iteration."""
    out = tmp_path / "run"
    shutil.copytree(finished[method], out)
    shutil.rmtree(out / "checkpoints" / "policy" / "4")
    (out / "summary.json").unlink()
    runs.train(*flags(out, method), "--resume")
    assert_same_run(out, finished[method])


@pytest.mark.parametrize(
    ("method", "place", "count", "policy_step"),
    [
        ("ppo", "in_critic_update", 9, [2]),
        ("grpo", "in_policy_update", 10, [2]),
        ("rloo", "in_policy_update", 15, [2]),
    ],
)
def test_a_run_that_was_killed_in_an_update_equals_one_that_was_not(
    tmp_path: Path, method: str, place: str, count: int, policy_step: list[int]
):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    arguments = {"sft__epochs": 1, "critic__epochs": 2, "critic__learning_rate": 1e-2}
    died = runs.start(
        place, str(count), *flags(killed, method, **arguments), module="tests.e2e.killed"
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    steps = (killed / "checkpoints" / "policy").glob("*")
    assert [int(p.name) for p in steps if p.name.isdigit()] == policy_step
    runs.train(*flags(killed, method, **arguments), "--resume")
    runs.train(*flags(whole, method, **arguments))
    assert_same_run(killed, whole)


def test_the_critic_is_in_the_checkpoint_with_its_optimizer(finished: dict[str, Path]):
    assert len(state(finished["ppo"])) > 1.9 * len(state(finished["grpo"]))


def test_an_offline_method_samples_for_a_round_and_then_trains_once(finished: dict[str, Path]):
    lines = runs.metrics(finished[OFFLINE])
    assert [(line.get("round"), line.get("files"), line.get("kept")) for line in lines] == [
        (None, None, None),
        (0, 2, 16),
        (None, None, None),
        (1, 2, 16),
    ]
    steps = [read_rollouts(finished[OFFLINE], i)[0]["policy_step"] for i in (1, 2, 3, 4)]
    assert steps == [0, 0, 1, 1]
    assert [line["kl_k1"] == 0 for line in lines] == [True, True, False, False]
    assert all(line["entropy"] > 0 for line in lines)
    assert {line["tokens_trained"] for line in lines} == {0}
    record = read_rollouts(finished[OFFLINE], 1)[0]
    assert not record.keys() & {"values", "advantages"}


@pytest.mark.parametrize("method", ["nothing:Here", "tests.e2e.tasks:Digits", "vinepo"])
def test_a_method_that_does_not_exist_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
):
    out = tmp_path / "run"
    assert run.main(flags(out, method)) == 2
    assert "algorithm" in capsys.readouterr().err
    assert not out.exists()
