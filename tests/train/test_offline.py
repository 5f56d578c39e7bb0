"""The order of examples in a training on own responses, and RestEM's stopping rule."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from vinejax.config import Config, RestemConfig
from vinejax.report import RolloutLog
from vinejax.train import batches, offline
from vinejax.train.algorithms import restem
from vinejax.train.clock import Clock
from vinejax.train.selection import Sampled


def test_epochs_are_shuffles_one_behind_the_other():
    order = [i for step in range(14) for i in batches.shuffled(7, 3, step, (5, 1))]
    epochs = np.reshape(order, (6, 7))
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) > 1
    assert batches.shuffled(7, 7, 0, (5, 2)) != epochs[0].tolist()


def test_fewer_examples_than_a_batch_are_repeated_in_it():
    assert sorted(batches.shuffled(2, 5, 0, (0,))) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    assert offline.updates_of(1, 2, 5) == 1
    assert offline.updates_of(8, 1000, 64) == 125


def test_rows_are_prompt_and_response():
    responses = [
        offline.Response(np.array([5, 6, 7, 8], np.int32), 2, -1.0),
        offline.Response(np.array([5, 9], np.int32), 1, -2.0),
    ]
    rows = offline.padded(responses)
    assert rows["length"].tolist() == [4, 2]
    assert rows["tokens"][0, :4].tolist() == [5, 6, 7, 8]
    assert rows["is_response"][:, :5].tolist() == [
        [False, False, True, True, False],
        [False, True, False, False, False],
    ]


def test_what_was_sampled_is_read_back(tmp_path: Path):
    """NaN becomes null on disk: such a response is nothing to train on."""
    record = {"problem": "a", "reward": 1.0, "tokens": [5, 6], "prompt_length": 1}
    sums = (-0.1, float("nan"), -1 / 3)
    RolloutLog(tmp_path).write(2, [record | {"ref_logp": logp} for logp in sums])
    found = offline.read(tmp_path, range(2, 3))
    assert [(origin.sample, r.ref_logp) for origin, r in found.items()] == [(0, -0.1), (2, -1 / 3)]
    assert found[Sampled("a", 2, 0, 1.0)].tokens.tolist() == [5, 6]


def judged(
    scores: list[float], stopping: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[offline.Course, int, float]:
    """RestEM's verdicts on policies 0, 10, 20, ...: the course, the best policy, its parameter."""
    config = Config(restem=RestemConfig(stopping=stopping))
    learner = SimpleNamespace(weights=lambda: None, state=SimpleNamespace(params=None))
    context: Any = SimpleNamespace(
        setup=SimpleNamespace(config=config, validation=[]),
        learner=learner,
        graders=None,
        progress=SimpleNamespace(phase=lambda _: None, note=lambda _: None),
        start=lambda: {"w": jnp.float32(0)},
    )
    left = iter(scores)
    found = SimpleNamespace(accuracy=SimpleNamespace(pass_at_1=0.0))
    course = offline.Course()
    with restem._Judge(context, "RestEM", folder, 1, Clock()) as judge:

        def evaluate(*_: Any) -> Any:
            found.accuracy.pass_at_1 = next(left)
            return found

        monkeypatch.setattr(restem, "evaluate", evaluate)
        for i in range(len(scores)):
            learner.state.params = {"w": jnp.float32(10 * i)}
            judge(10 * i, course)
            if course.stopped:
                break
        best = judge.best(course)
        return course, best, float(judge.params(best)["w"])


@pytest.mark.parametrize(
    ("scores", "stopping", "validations", "best"),
    [
        ([0.2, 0.3, 0.3, 0.9], "first", 3, 10),  # as good as before is no improvement
        ([0.2, 0.3, 0.25, 0.9, 0.1], "best", 5, 30),
        ([0.2, 0.1, 0.9], "first", 2, 0),
        ([0.2, 0.2, 0.2], "best", 3, 0),  # of equals the earliest
        ([0.1, 0.2, 0.3, 0.4, 0.5], "first", 5, 40),
    ],
)
def test_the_stopping_rule(
    scores: list[float],
    stopping: str,
    validations: int,
    best: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    course, kept, parameter = judged(scores, stopping, tmp_path / "best", monkeypatch)
    assert len(course.validations) == validations
    assert (kept, parameter) == (best, best)
    assert course.stopped == (stopping == "first" and validations < len(scores))
