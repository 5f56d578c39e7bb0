"""RestEM and DPO-Positive: rounds, what they train on, exact resume in sampling and in training."""

import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.e2e import runs
from tests.e2e.test_resume import assert_same_run
from vinejax.report import read_rollouts
from vinejax.train import folder
from vinejax.train.run import load_policy
from vinejax.train.start import start_policy

FAST = {"sft__epochs": 0, "evaluation__problems": 4, "evaluation__test_problems": 4}
RESTEM = FAST | {
    "algorithm": "restem",
    "restem__rounds": 2,
    "restem__keep": 2,
    "restem__evaluate_every": 2,
    "restem__stopping": "best",
    "update__epochs": 8,
}
DPO = FAST | {"algorithm": "dpo_positive", "dpo__pairs": 3, "update__epochs": 4}
METHODS = {"restem": RESTEM, "dpo_positive": DPO}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An uninterrupted run of both."""
    root = tmp_path_factory.mktemp("offline")
    for name, changes in METHODS.items():
        runs.train(*runs.flags(root / name, **changes))
    return {name: root / name for name in METHODS}


def sampled(out: Path, iterations: range) -> list[dict[str, Any]]:
    return [record for i in iterations for record in read_rollouts(out, i)]


def is_start(out: Path) -> bool:
    """Whether the newest policy is, bit for bit, the one that the run began with."""
    _, params, tokenizer = load_policy(out)
    _, start = start_policy(folder.read_config(out), tokenizer)
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, params, start)))


def test_restem_imitates_what_was_right_in_the_round(finished: dict[str, Path]):
    lines = runs.metrics(finished["restem"])
    for round, line in enumerate((lines[1], lines[3])):
        records = sampled(finished["restem"], range(2 * round + 1, 2 * round + 3))
        right = Counter(r["problem"] for r in records if r["reward"] == 1)
        assert line["training/examples"] == sum(min(n, 2) for n in right.values()) > 0
        assert line["training/updates"] == round_to(8 * line["training/examples"], 4)
        updates, scores = zip(*line["training/validations"], strict=True)
        assert updates[0] == 0
        assert updates[-1] == line["training/updates"]
        kept = updates[scores.index(max(scores))]
        assert line["training/updates_kept"] == kept
        assert line["validation/pass_at_1"] == max(scores)  # the policy that goes on is that one


def round_to(total: int, size: int) -> int:
    return round(total / size)


def test_dpo_trains_on_pairs_of_all_iterations(finished: dict[str, Path]):
    line = runs.metrics(finished["dpo_positive"])[-1]
    groups: dict[str, list[float]] = {}
    for record in sampled(finished["dpo_positive"], range(1, 5)):
        groups.setdefault(record["problem"], []).append(record["reward"])
    accepted = [sum(r >= 0.5 for r in rewards) for rewards in groups.values()]
    rejected = [sum(r < 0.5 for r in rewards) for rewards in groups.values()]
    pairs = [min(3, a * r) for a, r in zip(accepted, rejected, strict=True)]
    assert line["training/examples"] == sum(pairs) > 0
    assert line["training/updates"] == round_to(4 * sum(pairs), 4)
    assert line["training/loss_last"] < np.log(2)


@pytest.mark.parametrize("method", METHODS)
def test_a_round_samples_with_one_policy_and_ends_with_the_training(
    finished: dict[str, Path], method: str
):
    lines = runs.metrics(finished[method])
    ends = [2, 4] if method == "restem" else [4]
    for line in lines:
        is_end = line["iteration"] in ends
        assert any(name.startswith("training/") for name in line) == is_end
        assert (line["tokens_trained"] > 0) == is_end
        assert ("validation/pass_at_1" in line) == is_end
        assert None not in line.values()
    kept = lines[1].get("training/updates_kept", 0)
    steps = [{r["policy_step"] for r in read_rollouts(finished[method], i)} for i in (1, 2, 3, 4)]
    assert steps == [{0}, {0}, {kept}, {kept}]
    assert [line["kl_k1"] == 0 for line in lines] == [True, True, kept == 0, kept == 0]
    assert runs.summary(finished[method])["episodes"] == 4 * 8


def test_methods_begin_with_the_same_episodes(finished: dict[str, Path]):
    for iteration in (1, 2):
        a, b = (read_rollouts(finished[name], iteration) for name in METHODS)
        assert [r["tokens"] for r in a] == [r["tokens"] for r in b]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lost", ["policy/4", "policy/[24]", "*/4 round-*"])
def test_a_run_goes_on_from_an_iteration(
    finished: dict[str, Path], tmp_path: Path, method: str, lost: str
):
    """As if it had been killed behind the last training, before the policy was saved.

    A training that is on disk is not done again; another is, to the same numbers.
    """
    out = tmp_path / "run"
    shutil.copytree(finished[method], out)
    for pattern in lost.split():
        for place in (out / "checkpoints").glob(pattern):
            shutil.rmtree(place)
    (out / "summary.json").unlink()
    runs.train(*runs.flags(out, **METHODS[method]), "--resume")
    assert_same_run(out, finished[method])


@pytest.mark.parametrize(
    ("method", "place", "count", "by", "said"),
    [
        ("restem", "in_supervised_update", 4, "SIGKILL", ""),
        runs.slow("restem", "in_supervised_update", 3, "SIGTERM", "RestEM round 1 step 3"),
        runs.slow("dpo_positive", "in_pair_update", 5, "SIGTERM", "DPO-Positive step 5"),
        ("dpo_positive", "in_pair_update", 5, "SIGKILL", ""),
    ],
)
def test_a_run_goes_on_from_the_middle_of_a_training(
    finished: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    place: str,
    count: int,
    by: str,
    said: str,
):
    out = tmp_path / "run"
    arguments = runs.flags(out, **METHODS[method])
    monkeypatch.setenv("KILLED_BY", by)
    died = runs.start(place, str(count), *arguments, module="tests.e2e.killed")
    assert died.returncode == (-signal.SIGKILL if by == "SIGKILL" else 75), died.stderr
    assert not said or f"{by} after {said}, which is saved" in died.stderr
    (round,) = (out / "checkpoints").glob("round-*")
    # Every second update of RestEM is validated, behind a checkpoint.
    kept = [count] if said else [count - 2] if method == "restem" else []
    assert [p.name for p in (round / "training").glob("[0-9]*")] == [str(step) for step in kept]
    runs.train(*arguments, "--resume")
    assert_same_run(out, finished[method])


@pytest.mark.parametrize("method", METHODS)
def test_at_rate_0_the_policy_keeps_every_bit(tmp_path: Path, method: str):
    changes = METHODS[method] | {"update__learning_rate": 0, "iterations": 2}
    runs.train(*runs.flags(tmp_path / "run", **changes | {"restem__stopping": "first"}))
    line = runs.metrics(tmp_path / "run")[-1]
    assert line["training/grad_norm"] > 0
    if method == "restem":  # the first validation is no improvement
        assert [updates for updates, _ in line["training/validations"]] == [0, 2]
        assert (line["training/updates"], line["training/updates_kept"]) == (2, 0)
    assert is_start(tmp_path / "run")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_with_nothing_to_learn_from_says_so_and_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
):
    changes = METHODS[method] | {"task__name": "tests.e2e.tasks:Hopeless"}
    runs.train(*runs.flags(tmp_path / "run", **changes))
    shown = capsys.readouterr().err
    assert shown.count("so the policy stays as it is") == (2 if method == "restem" else 1)
    line = runs.metrics(tmp_path / "run")[-1]
    assert (line["training/examples"], line["training/updates"], line["tokens_trained"]) == (
        0,
        0,
        0,
    )
    assert is_start(tmp_path / "run")
