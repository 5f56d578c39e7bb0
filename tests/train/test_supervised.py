"""SFT that compares learning rates and epochs on validation: its choice, also after a death."""

import contextlib
import io
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from experiments import cli, run
from tests.e2e import runs
from vinejax import policy, update
from vinejax.config import Config, Preempted, UserError
from vinejax.grading import GraderPool
from vinejax.journal import Journal
from vinejax.report import Progress
from vinejax.statistics import Evaluation
from vinejax.train import candidates, supervised
from vinejax.train.run import load_policy
from vinejax.train.setup import prepare
from vinejax.train.stopping import StopRequest

RATES = (3e-3, 3e-2)
EPOCH = 20  # updates: 160 demonstrations, 8 in a batch


def config_of(rates: tuple[float, ...] = RATES, select: str = "validation", **more: Any) -> Config:
    argv = runs.flags(Path("unused"), algorithm="sft", sft__epochs=2, sft__select=select, **more)
    argv += ["--config.sft.learning_rates", *map(str, rates)]
    return cli.parse(argv, run.RunFlags(), "run", "")[0]


def heard(name: str | None = None) -> StopRequest:
    """A signal of this name, or none so far."""
    stop = StopRequest(lambda text: None)
    stop.name = name
    return stop


def fine_tune(
    out: Path,
    config: Config,
    shown: io.StringIO | None = None,
    stop: StopRequest | None = None,
) -> policy.Params:
    """The SFT phase of a run, as far as it gets; on one device unless the mesh has fsdp."""
    out.mkdir(exist_ok=True)
    progress = Progress(0, shown or io.StringIO())
    with (
        runs.one_device() if config.mesh.fsdp == 1 else contextlib.nullcontext(),
        Journal.open(out / "verdicts.jsonl") as journal,
        GraderPool(config.task.name, {}, 0, journal=journal) as graders,
    ):
        setup, start = prepare(config)
        examples = supervised.demonstrations(setup)
        return candidates.fine_tune(setup, start, examples, out, graders, progress, stop or heard())


def found(out: Path) -> dict[str, Any]:
    return json.loads((out / "sft.json").read_text())


def assert_same(a: policy.Params, b: policy.Params) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes evaluations give these numbers, in this order; one more fails the test."""

    def give(*values: float) -> None:
        left = iter(values)

        def evaluate(*_: Any) -> SimpleNamespace:
            value = next(left, None)
            assert value is not None, "an evaluation that is not needed"
            return SimpleNamespace(
                accuracy=Evaluation(value, (value - 0.1, value + 0.1), 8, 2, value)
            )

        monkeypatch.setattr(candidates, "evaluate", evaluate)

    return give


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float, int], policy.Params]:
    """Parameters of a plain SFT with some learning rate, after some update."""
    folder = tmp_path_factory.mktemp("plain")
    kept: dict[tuple[float, int], policy.Params] = {}

    def of(rate: float, step: int) -> policy.Params:
        if (rate, step) not in kept:
            config = config_of((), "last", sft__learning_rate=rate)

            def keep(at: int) -> Callable[[policy.Params], None]:
                return lambda params: kept.update({(rate, at): jax.tree.map(np.array, params)})

            with runs.one_device():
                setup, start = prepare(config)
            examples = supervised.demonstrations(setup)
            silent = Progress(0, io.StringIO())
            calls = {at: keep(at) for at in (EPOCH, 2 * EPOCH)}
            place = folder / str(rate)
            supervised.fine_tune(setup, start, examples, place, silent, heard(), folder, calls)
        return kept[rate, step]

    return of


@pytest.mark.parametrize(
    ("epochs", "count", "ends"),
    [
        (2, 160, {20: 1.0, 40: 2.0}),
        (2.5, 160, {20: 1.0, 40: 2.0, 50: 2.5}),
        (0.5, 160, {10: 0.5}),
        (0.01, 160, {1: 0.01}),
        (3, 100, {12: 1.0, 25: 2.0, 38: 3.0}),  # 12.5 updates an epoch
        (3, 8, {1: 1.0, 2: 2.0, 3: 3.0}),
    ],
)
def test_updates_at_the_ends_of_epochs(epochs: float, count: int, ends: dict[int, float]):
    config = config_of()
    config = replace(config, sft=replace(config.sft, epochs=epochs))
    assert supervised.epoch_ends(config, count) == ends


def test_without_candidates_nothing_is_compared(
    tmp_path: Path, scores: Callable[..., None], trained: Callable[..., policy.Params]
):
    scores()
    params = fine_tune(tmp_path, config_of((), "last", sft__learning_rate=RATES[0]))
    assert_same(params, trained(RATES[0], 2 * EPOCH))
    assert [path.name for path in (tmp_path / "checkpoints" / "sft").iterdir()] == ["40"]
    assert not (tmp_path / "sft.json").exists()


@pytest.mark.parametrize(
    ("rates", "select", "values", "chosen"),
    [
        (RATES, "validation", (0.2, 0.5, 0.4, 0.5), (RATES[0], 2)),  # the first of the best
        (RATES, "validation", (0.2, 0.1, 0.5, 0.4), (RATES[1], 1)),
        (RATES, "last", (0.2, 0.5), (RATES[1], 2)),
        (RATES, "validation", (0.0, 0.0, 0.0, 0.0), (RATES[0], 1)),
        ((), "validation", (0.5, 0.2), (RATES[0], 1)),
    ],
)
def test_the_best_on_validation_is_chosen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: Callable[..., None],
    trained: Callable[..., policy.Params],
    rates: tuple[float, ...],
    select: str,
    values: tuple[float, ...],
    chosen: tuple[float, int],
):
    """Its parameters are those of SFT with that rate alone: no candidate knows of another."""
    scores(*values)
    shown = io.StringIO()
    config = config_of(rates, select, sft__learning_rate=RATES[0])
    params = fine_tune(tmp_path, config, shown)
    rate, epoch = chosen
    assert_same(params, trained(rate, epoch * EPOCH))
    result = found(tmp_path)
    assert [row["pass_at_1"] for row in result["trials"]] == list(values)
    best = result["chosen"]
    assert (best["learning_rate"], best["epoch"], best["step"]) == (rate, epoch, epoch * EPOCH)
    assert best["interval"] == [best["pass_at_1"] - 0.1, best["pass_at_1"] + 0.1]
    assert f"chosen is learning rate {rate:g}, epoch {epoch}" in shown.getvalue()
    left = {path.name for path in (tmp_path / "checkpoints" / "sft").iterdir()}
    assert not any(name.startswith("lr-") for name in left)
    monkeypatch.setattr(update, "make_sft_step", None)
    assert_same(fine_tune(tmp_path, config), params)  # from disk, without training or evaluation


class Died(BaseException):
    """Stands for the end of the process."""


def dies(count: int, call: Callable[..., Any], after: bool = False) -> Callable[..., Any]:
    """`call`, whose `count`-th time is the end: instead of it, or after it is done."""
    left = count

    def watched(*arguments: Any, **settings: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise Died
        result = call(*arguments, **settings)
        if left == 0:
            raise Died
        return result

    return watched


def in_update(patch: pytest.MonkeyPatch, count: int) -> None:
    """Of the whole phase."""
    make, reached = update.make_sft_step, dies(count, lambda: None)

    def make_step(*arguments: Any) -> Any:
        made = make(*arguments)
        return made._replace(step=lambda *a: (reached(), made.step(*a))[1])

    patch.setattr(update, "make_sft_step", make_step)


def in_evaluation(patch: pytest.MonkeyPatch, count: int) -> None:
    """Verdicts are in the journal, but no trial in the file."""
    patch.setattr(candidates, "evaluate", dies(count, candidates.evaluate, after=True))


def in_file(patch: pytest.MonkeyPatch, count: int) -> None:
    """The best parameters are kept, but the file does not know of it."""
    patch.setattr(candidates.report, "write_json", dies(count, candidates.report.write_json))


def in_removal(patch: pytest.MonkeyPatch, count: int) -> None:
    """A candidate is done, but its folder is still there."""
    patch.setattr(candidates, "shutil", SimpleNamespace(rmtree=dies(count, shutil.rmtree)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, policy.Params]:
    """A comparison that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    params = fine_tune(out, config_of())
    values = [row["pass_at_1"] for row in found(out)["trials"]]
    assert len(set(values)) > 2, "the small run has nothing to choose from"
    return out, params


@pytest.mark.parametrize(
    ("place", "counts"),
    [
        (in_update, (15, 40)),  # in the first epoch, then in the second candidate's
        (in_evaluation, (1, 2)),
        (in_file, (2, 2)),  # a fresh run writes the file once more, at its start
        (in_removal, (2,)),  # and removes what there may be
    ],
)
def test_a_comparison_that_dies_again_and_again_comes_to_the_same_choice(
    tmp_path: Path,
    whole: tuple[Path, policy.Params],
    place: Callable[[pytest.MonkeyPatch, int], None],
    counts: tuple[int, ...],
):
    for count in counts:
        with pytest.MonkeyPatch.context() as patch:
            place(patch, count)
            patch.setattr(supervised, "SAVE_EVERY", 7)
            with pytest.raises(Died):
                fine_tune(tmp_path, config_of())
        assert found(tmp_path)["chosen"] is None
    assert_same(fine_tune(tmp_path, config_of()), whole[1])
    assert found(tmp_path) == found(whole[0])


def stop_in(steps: int, stop: StopRequest) -> Iterator[None]:
    """Sets the signal's name in the last of so many updates."""
    for _ in range(steps - 1):
        yield
    stop.name = "SIGTERM"
    while True:
        yield


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (2 * EPOCH, "SIGTERM after SFT step 40, which is saved"),  # before its evaluation
        (3 * EPOCH, "SIGTERM after SFT step 20, which is saved"),  # of the second candidate
    ],
)
def test_a_comparison_that_is_asked_to_stop_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: tuple[Path, policy.Params],
    steps: int,
    said: str,
):
    stop, make = heard(), update.make_sft_step
    calls = stop_in(steps, stop)
    with monkeypatch.context() as patch:

        def make_step(*arguments: Any) -> Any:
            made = make(*arguments)
            return made._replace(step=lambda *a: (next(calls), made.step(*a))[1])

        patch.setattr(update, "make_sft_step", make_step)
        with pytest.raises(Preempted, match=said):
            fine_tune(tmp_path, config_of(), stop=stop)
    assert_same(fine_tune(tmp_path, config_of()), whole[1])
    assert found(tmp_path) == found(whole[0])


def test_a_signal_in_an_evaluation_stops_before_the_next_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: Callable[..., None]
):
    scores(0.5)
    stop, evaluate = heard(), candidates.evaluate

    def signalled(*arguments: Any) -> Any:
        stop.name = "SIGINT"
        return evaluate(*arguments)

    monkeypatch.setattr(candidates, "evaluate", signalled)
    with pytest.raises(Preempted, match="SIGINT after SFT with learning rate"):
        fine_tune(tmp_path, config_of(select="last"), stop=stop)
    assert len(found(tmp_path)["trials"]) == 1


def test_without_its_file_a_comparison_is_made_again(
    tmp_path: Path, whole: tuple[Path, policy.Params]
):
    with pytest.MonkeyPatch.context() as patch:
        in_update(patch, 3 * EPOCH)
        with pytest.raises(Died):
            fine_tune(tmp_path, config_of())
    (tmp_path / "sft.json").unlink()
    assert_same(fine_tune(tmp_path, config_of()), whole[1])
    assert found(tmp_path) == found(whole[0])


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"trials": [{"epoch": 1}]}'])
def test_a_broken_file_is_named_with_a_remedy(tmp_path: Path, text: str):
    (tmp_path / "sft.json").write_text(text)
    with pytest.raises(UserError, match=r"sft\.json cannot be read .* delete it"):
        fine_tune(tmp_path, config_of())


def test_the_chosen_parameters_lie_on_the_mesh_as_trained_ones_do(
    tmp_path: Path, scores: Callable[..., None]
):
    plain = config_of((), "last", mesh__fsdp=2)
    trained = fine_tune(tmp_path / "plain", plain)
    scores(0.1, 0.2)
    compared = replace(plain, sft=replace(plain.sft, select="validation"))
    chosen = fine_tune(tmp_path / "compared", compared)
    assert_same(chosen, trained)
    for a, b in zip(jax.tree.leaves(chosen), jax.tree.leaves(trained), strict=True):
        assert a.sharding == b.sharding


@pytest.mark.slow
def test_a_run_killed_while_it_compares_equals_one_that_was_not(
    tmp_path: Path, whole: tuple[Path, policy.Params]
):
    """SIGKILL in the second candidate; the policy of the run is the chosen one."""
    out = tmp_path / "run"
    argv = runs.flags(out, algorithm="sft", sft__epochs=2, sft__select="validation")
    argv += ["--resume", "--config.sft.learning_rates", *map(str, RATES)]
    died = runs.start("in_supervised_update", "65", *argv, module="tests.e2e.killed")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(found(out)["trials"]) == 3
    runs.train(*argv)
    assert found(out) == found(whole[0])
    assert_same(load_policy(out)[1], whole[1])
    phases = {json.loads(line)["phase"] for line in (out / "verdicts.jsonl").open()}
    assert phases == {"sft_validation", "validation", "test"}
