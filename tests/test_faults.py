"""The script that kills runs at random moments: what it would notice, and what it finds."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import faults
from experiments import cli
from tests.e2e import runs
from vinejax.config import RunError, UserError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("faults") / "whole"
    runs.train(*runs.flags(out, algorithm="grpo", sft__epochs=0, iterations=2))
    return out


def test_equal_runs_are_equal_and_every_kind_of_difference_is_named(whole: Path, tmp_path: Path):
    other = tmp_path / "killed"
    shutil.copytree(whole, other)
    assert faults.differences(whole, other) == []
    (other / "rollouts" / "000002.jsonl.gz").unlink()
    entries = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps(entries | {"seconds": 0.0, "episodes": 1}))
    lines = (other / "metrics.jsonl").read_text().splitlines()
    changed = json.loads(lines[1]) | {"reward": -1.0, "time/iteration": 0.0}
    (other / "metrics.jsonl").write_text(lines[0] + "\n" + json.dumps(changed) + "\n")
    shutil.rmtree(other / "checkpoints" / "policy" / "2")
    assert faults.differences(whole, other) == ["metrics", "rollouts", "summary", "parameters"]
    with pytest.raises(RunError, match=r"differs from .* in metrics, rollouts"):
        faults._compared(whole, other)


def test_a_lost_iteration_is_noticed(whole: Path, tmp_path: Path):
    line = (whole / "metrics.jsonl").read_text().splitlines()[1]
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(RunError, match=r"has the iterations \[2\]"):
        faults._checked(tmp_path)


def test_it_needs_a_folder_of_its_own(tmp_path: Path):
    with pytest.raises(UserError, match="--out is missing"):
        faults.measure(faults.Flags())
    (tmp_path / "whole").mkdir()
    assert faults.main([f"--out={tmp_path}"]) == cli.USAGE


KILLS = {
    name: 20 if name == "vineppo" else 5
    for name in ("vineppo", "ppo", "grpo", "rloo", "restem", "dpo_positive", "sft")
}


FIELDS = runs.SMALL | {
    "restem.rounds": 2,
    "restem.keep": 2,
    "restem.evaluate_every": 2,
    "dpo.pairs": 3,
    "evaluation.problems": 4,
    "evaluation.test_problems": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", KILLS)
def test_a_run_killed_at_random_moments_equals_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
):
    monkeypatch.setenv("XLA_FLAGS", "")  # one device, not the eight of the tests
    kills = KILLS[algorithm]
    fields = tuple(f"{name}={value}" for name, value in FIELDS.items())
    out = tmp_path / "runs"
    found = faults.measure(faults.Flags(out, algorithm=algorithm, kills=kills, fields=fields))
    assert found["equal"]
    assert found["kills"] == kills
