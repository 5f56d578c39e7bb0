"""Skipped updates in a row: what is counted, when a run stops, and what it leaves behind."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import run
from tests.e2e import runs
from vinejax import report, update
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, RunError, UpdateConfig
from vinejax.train import learning, offline
from vinejax.train.skipped import FILE, Skips


def flagged(*skipped: int) -> list[Any]:
    return [SimpleNamespace(skipped=float(s)) for s in skipped]


def batches(count: int) -> list[dict[str, np.ndarray]]:
    return [{"tokens": np.full((2, 3), i), "length": np.array([3, i])} for i in range(count)]


def test_a_row_may_span_calls_and_ends_with_an_update_that_was_made(tmp_path: Path):
    skips = Skips(Config(update=UpdateConfig(max_skipped=3)), tmp_path)
    skips.look(flagged(1, 1, 0, 1, 1), batches(5))
    with pytest.raises(RunError) as error:
        skips.look(flagged(1, 0, 0), batches(3))
    for words in ("3 updates in a row", "update.max_skipped", str(tmp_path / FILE), "--resume"):
        assert words in str(error.value)
    with np.load(tmp_path / FILE, allow_pickle=False) as saved:
        assert {name: saved[name].tolist() for name in saved} == {
            "tokens": [[0, 0, 0], [0, 0, 0]],
            "length": [3, 0],
        }


def test_the_batch_is_that_of_the_update_that_was_one_too_many(tmp_path: Path):
    skips = Skips(Config(update=UpdateConfig(max_skipped=2)), tmp_path)
    with pytest.raises(RunError, match=r"lower update\.learning_rate"):
        skips.look(flagged(0, 1, 1, 1), iter(batches(4)))
    with np.load(tmp_path / FILE, allow_pickle=False) as saved:
        assert saved["length"][1] == 2


def test_means_are_over_the_updates_that_were_made():
    def metrics(loss: float, skipped: float) -> update.SftMetrics:
        own = {f.name: jnp.float32(1) for f in fields(update.SftMetrics)}
        return update.SftMetrics(**own | {"loss": loss, "skipped": skipped, "tokens": 10.0})

    mixed = learning.combine([metrics(2, 0), metrics(np.nan, 1), metrics(4, 0)])
    assert (mixed["loss"], mixed["skipped"], mixed["tokens"]) == (3, 1, 30)
    assert np.isnan(learning.combine([metrics(np.nan, 1)])["loss"])
    course = offline.Course()
    course.add([metrics(2, 0), metrics(np.nan, 1), metrics(4, 0)])
    found = course.metrics()
    assert (found["training/loss"], found["skipped"], found["training/updates"]) == (3, 1, 3)


def spoiling(make: Any, bad: range) -> Any:
    """A `make_step` whose steps get parameters that are no numbers, from update to update."""

    def make_step(*arguments: Any) -> update.Sharded:
        made = make(*arguments)

        def step(state: update.State, batch: Any) -> tuple[update.State, Any]:
            if int(state.step) not in bad:
                return made.step(state, batch)
            nan = jax.tree.map(lambda x: x * jnp.nan, state.params)
            after, metrics = made.step(replace(state, params=nan), batch)
            return replace(after, params=state.params), metrics

        return made._replace(step=step)

    return make_step


def test_a_run_goes_on_over_a_few_and_stops_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """4 updates an iteration: one of the first is bad, and all from the third iteration on."""
    out = tmp_path / "run"
    arguments = runs.flags(out, sft__epochs=0.2, update__max_skipped=6, algorithm="grpo")
    bad = range(1, 2)
    monkeypatch.setattr(update, "make_step", spoiling(update.make_step, bad))
    runs.train(*arguments, "--config.iterations=1", "--config.update.decay=constant")
    (line,) = runs.metrics(out)
    assert line["skipped"] == 1
    assert line["loss"] is not None
    assert "1 updates were skipped" in capsys.readouterr().err

    out = tmp_path / "spoilt"
    arguments[1] = f"--out={out}"
    monkeypatch.setattr(update, "make_step", spoiling(update.make_step, range(8, 100)))
    with runs.one_device():
        assert run.main(arguments) == 1
    shown = capsys.readouterr().err
    assert "6 updates in a row were skipped, as many as update.max_skipped allows" in shown
    assert (out / FILE).exists()
    assert [line["iteration"] for line in report.read_metrics(out)] == [1, 2, 3]
    with Checkpoints(out / "checkpoints" / "policy", read_only=True) as kept:
        assert kept.latest() == 2


def test_supervised_fine_tuning_stops_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "run"
    monkeypatch.setattr(update, "make_sft_step", spoiling(update.make_sft_step, range(52, 99)))
    with runs.one_device():
        assert run.main(runs.flags(out, update__max_skipped=4)) == 1
    shown = capsys.readouterr().err
    assert "4 updates in a row were skipped" in shown
    assert "lower sft.learning_rate" in shown
    with np.load(out / FILE, allow_pickle=False) as saved:
        assert set(saved) == {f.name for f in fields(update.SftBatch)}
    with Checkpoints(out / "checkpoints" / "sft", read_only=True) as kept:
        assert kept.latest() == 50
