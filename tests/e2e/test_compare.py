"""Methods beside each other: one start, what a kill changes, what is refused. And the sweep."""

import json
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import sweep
from experiments import compare
from tests.e2e import runs
from tests.e2e.conftest import Refused
from tests.e2e.test_resume import assert_same_run
from vinejax.checkpoint import Checkpoints
from vinejax.report import read_rollouts
from vinejax.train import folder

FIELDS = {
    "iterations": 2,
    "sft__epochs": 1,
    "evaluation__every": 1,
    "evaluation__problems": 4,
    "evaluation__test_problems": 4,
    "checkpoint__every": 1,
    "restem__rounds": 2,
}
METHODS = ("ppo", "restem")
SEEDS = (5, 6)


def flags(out: Path, **changes: Any) -> list[str]:
    own = ["--algorithms=ppo,restem", "--seeds=2", "--states=6", "--rollouts=4"]
    return [*runs.flags(out, **FIELDS | {"seed": SEEDS[0]} | changes), *own]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in one go."""
    out = tmp_path_factory.mktemp("compare") / "finished"
    with runs.one_device():
        assert compare.main(flags(out)) == 0
    return out


def result(out: Path) -> Any:
    """compare.json without times."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if "seconds" not in k}
        return value

    return timeless(json.loads((out / "compare.json").read_text()))


def sft_of(run: Path) -> list[np.ndarray]:
    """Every array that SFT ended with, in a run folder."""
    with Checkpoints(run / "checkpoints" / "sft", read_only=True) as checkpoints:
        step = checkpoints.latest()
        assert step is not None
        record = checkpoints._record(step)["arrays"]
        target = {name: np.empty(shape, dtype) for name, (dtype, shape) in record.items()}
        return [np.asarray(leaf) for leaf in jax.tree.leaves(checkpoints.restore(step, target)[0])]


@pytest.mark.slow
def test_all_methods_start_from_the_same_bits_and_episodes(finished: Path):
    for seed in SEEDS:
        start = sft_of(finished / f"sft-seed{seed}")
        for method in METHODS:
            own = sft_of(finished / f"{method}-seed{seed}")
            assert [a.tobytes() for a in own] == [a.tobytes() for a in start]
        first, other = (read_rollouts(finished / f"{m}-seed{seed}", 1) for m in METHODS)
        assert [r["tokens"] for r in first] == [r["tokens"] for r in other]
        summaries = [runs.summary(finished / f"{m}-seed{seed}") for m in (*METHODS, "sft")]
        assert len({s["sft_pass_at_1"] for s in summaries}) == 1


@pytest.mark.slow
def test_a_start_that_was_taken_is_what_the_run_would_have_come_to(finished: Path, tmp_path: Path):
    arguments = runs.flags(tmp_path / "run", **FIELDS | {"seed": SEEDS[0], "algorithm": "ppo"})
    runs.train(*arguments)
    assert_same_run(tmp_path / "run", finished / f"ppo-seed{SEEDS[0]}")


@pytest.mark.slow
def test_the_result_is_what_the_runs_have(finished: Path):
    found = result(finished)
    assert found["seeds"] == list(SEEDS)
    for method in METHODS:
        numbers = found["methods"][method]
        summaries = [runs.summary(finished / f"{method}-seed{seed}") for seed in SEEDS]
        finals = [s["final_pass_at_1"] for s in summaries]
        assert numbers["pass_at_1"]["final"]["by_seed"] == finals
        assert numbers["pass_at_1"]["final"]["mean"] == np.mean(finals)
        assert numbers["episodes"] == [2 * 8] * 2
        assert numbers["tokens_sampled"] == [s["tokens_sampled"] for s in summaries]
        assert [len(curve) for curve in numbers["validation"]] == [3, 3]
        assert min(numbers["kl_k3"]) >= 0
    assert found["methods"]["ppo"]["updates"] == [8, 8]
    assert None not in found["methods"]["ppo"]["value_error"]
    assert found["methods"]["restem"]["value_error"] == [None, None]
    assert found["levels"]["PPO's best"] == [
        max(curve) for curve in found["methods"]["ppo"]["validation"]
    ]
    text = (finished / "compare.md").read_text()
    assert text.count("\n| restem") == 4


@pytest.mark.slow
def test_a_comparison_killed_within_and_between_runs_ends_with_the_same_table(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "killed"
    monkeypatch.setenv("KILLED_COMMAND", "compare")
    for place, count, newest in (
        ("in_policy_update", 6, "ppo-seed5"),  # in the second iteration
        ("behind_a_run", 1, "ppo-seed5"),
        ("in_supervised_update", 2, "restem-seed5"),  # in a round's training
    ):
        died = runs.start(place, str(count), *flags(out), module="tests.e2e.killed")
        assert died.returncode == -signal.SIGKILL, (place, died.stderr)
        begun = {path.name for path in out.iterdir()} - {f"sft-seed{seed}" for seed in SEEDS}
        assert begun == {"ppo-seed5", newest}
        assert not (out / "compare.json").exists()
    with runs.one_device():
        assert compare.main(flags(out)) == 0
    assert result(out) == result(finished)
    for method in METHODS:
        assert_same_run(out / f"{method}-seed6", finished / f"{method}-seed6")


@pytest.mark.slow
def test_a_finished_comparison_is_only_read(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    before = {
        name: content
        for name, content in runs.contents(finished).items()
        if not name.startswith("compare")
    }
    monkeypatch.setattr(folder, "write", lambda *_: pytest.fail("a run was begun"))
    assert compare.main([*flags(finished), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown == json.loads((finished / "compare.json").read_text())
    after = runs.contents(finished)
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_another_configuration_in_the_same_folder_is_refused(finished: Path, refused: Refused):
    message = refused(*flags(finished, update__learning_rate=1e-3), command=compare.main)
    assert "update.learning_rate: 0.003 -> 0.001" in message
    start = f"--start={finished / 'sft-seed5'}"
    out = finished.parent / "other"
    for changes, words in (
        ({"seed": 7}, "seed: 5 -> 7"),
        ({"sft__learning_rate": 1e-4}, "sft.learning_rate: 0.003 -> 0.0001"),
        ({"sft__epochs": 0}, "no SFT that could be taken"),
    ):
        message = refused(*runs.flags(out, **FIELDS | {"seed": 5} | changes), start)
        assert words in message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--algorithms=ppo,sft"], "--algorithms has sft"),
        (["--algorithms=ppo,ppo"], "--algorithms has ppo twice"),
        (["--algorithms=ppo,"], "--algorithms is 'ppo,'"),
        (["--algorithms=ppo,grop"], "did you mean grpo"),
        (["--seeds=0"], "--seeds is 0"),
        (["--states=-1"], "--states is -1"),
        (["--rollouts=0"], "--rollouts is 0"),
        (["--config.algorithm=ppo"], "name methods by --algorithms"),
        (["--algorithms=restem", "--config.restem.rounds=3"], "restem.rounds is 3"),
        (["--config.update.minibatch=5"], "update.minibatch is 5"),
        (["--tuned=nowhere.json"], "--tuned is nowhere.json"),
        (["--algoritms=ppo"], "--algorithms"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_starts(
    refused: Refused, out: Path, given: list[str], words: str
):
    assert words in refused("--config=tiny", f"--out={out}", *given, command=compare.main)
    assert not out.exists()


def test_a_start_that_is_no_finished_run_is_refused(refused: Refused, out: Path, tmp_path: Path):
    message = refused("--config=tiny", f"--out={out}", f"--start={tmp_path / 'nowhere'}")
    assert "holds no run" in message


@pytest.mark.slow
def test_a_sweep_goes_on_and_chooses_on_validation(tmp_path: Path):
    out = tmp_path / "sweep"
    changes = FIELDS | {"iterations": 1}
    arguments = [*runs.flags(out, **changes), "--algorithms=ppo,rloo", "--seeds=1"]
    arguments += ["--rates", "0.1", "1", "--critic_rates", "5", "--critic_epochs", "1", "2"]
    with runs.one_device():
        assert sweep.main(arguments) == 0
        (out / "rloo-lr0.003-seed0" / "summary.json").unlink()
        before = json.loads((out / "sweep.json").read_text())
        assert sweep.main(arguments) == 0
    found = json.loads((out / "sweep.json").read_text())
    assert found["chosen"] == before["chosen"]
    ppo = [row["fields"] for row in found["settings"] if row["algorithm"] == "ppo"]
    # Both rates with the first number of epochs, then the better one with the second.
    first = max(found["settings"][:2], key=lambda row: row["best_validation"])["fields"]
    rates = [3e-4, 3e-3, first["update.learning_rate"]]
    assert [row["update.learning_rate"] for row in ppo] == pytest.approx(rates)
    assert [row["critic.learning_rate"] for row in ppo] == pytest.approx([5 * x for x in rates])
    assert [row["critic.epochs"] for row in ppo] == [2, 2, 4]
    for method in ("ppo", "rloo"):
        group = [row for row in found["settings"] if row["algorithm"] == method]
        best = max(row["best_validation"] for row in group)
        chosen = next(row for row in group if row["fields"] == found["chosen"][method])
        assert chosen["best_validation"] == best
    assert (out / "sweep.md").read_text().count("*") == 2
    tuned = compare.chosen(out / "sweep.json", ["rloo"])["rloo"]
    assert tuned == found["chosen"]["rloo"]
