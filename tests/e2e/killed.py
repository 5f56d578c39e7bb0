"""experiments.run, killed at a chosen place: `python -m tests.e2e.killed PLACE COUNT FLAGS...`.

The process sends itself SIGKILL, or the signal that the environment variable KILLED_BY names, when
it comes to the place for the COUNT-th time. Checkpoints are
written before the run goes on, so that it is known which of them there are at the end. The variable
KILLED_COMMAND names another module of `experiments` instead of run.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from vinejax import report, sampler, train, update
from vinejax.checkpoint import Checkpoints
from vinejax.journal import Journal


def die() -> None:
    os.kill(os.getpid(), signal.Signals[os.environ.get("KILLED_BY", "SIGKILL")])


class Countdown:
    """Dies when it has been called `count` times."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            die()


def in_supervised_update(reached: Countdown) -> None:
    update.make_sft_step = _with_step(update.make_sft_step, reached)


def in_policy_update(reached: Countdown) -> None:
    update.make_step = _with_step(update.make_step, reached)


def in_critic_update(reached: Countdown) -> None:
    update.make_critic_step = _with_step(update.make_critic_step, reached)


def in_pair_update(reached: Countdown) -> None:
    update.make_dpo_step = _with_step(update.make_dpo_step, reached)


def _with_step(make: Callable[..., update.Sharded], reached: Countdown) -> Any:
    def make_step(*arguments: Any) -> update.Sharded:
        made = make(*arguments)

        def step(state: Any, batch: Any) -> Any:
            reached()
            return made.step(state, batch)

        return made._replace(step=step)

    return make_step


def in_value_sampling(reached: Countdown) -> None:
    """Behind the rollouts, before their grades: the trunks of the value phase bring their cache."""
    sample = sampler.sample

    def watched(*arguments: Any, **settings: Any) -> Any:
        samples = sample(*arguments, **settings)
        if settings.get("cache") is not None:
            reached()
        return samples

    sampler.sample = watched


def in_metrics_line(reached: Countdown) -> None:
    """Half of the line is on disk."""
    write = report.MetricsLog.write

    def torn(self: report.MetricsLog, metrics: Any) -> None:
        before = (self.folder / report.metrics.FILE).stat().st_size
        write(self, metrics)
        reached._left -= 1
        if reached._left == 0:
            path = self.folder / report.metrics.FILE
            os.truncate(path, (before + path.stat().st_size) // 2)
            die()

    report.MetricsLog.write = torn


def in_checkpoint(reached: Countdown) -> None:
    """All files of the policy's checkpoint are written, but it does not have its name yet."""
    seal = Checkpoints._seal

    def watched(self: Checkpoints) -> None:
        if self.folder.name == "policy":
            reached()
        seal(self)

    Checkpoints._seal = watched


def in_test(reached: Countdown) -> None:
    """Behind the verdicts of a test evaluation."""
    append = Journal.append

    def watched(self: Journal, iteration: int, phase: str, verdicts: Any) -> None:
        append(self, iteration, phase, verdicts)
        if phase == "test":
            reached()

    Journal.append = watched


def behind_a_run(reached: Countdown) -> None:
    """It is finished, but its last policy has not been measured yet."""
    measure = train.measure_endpoint

    def watched(*arguments: Any) -> dict[str, Any]:
        reached()
        return measure(*arguments)

    train.measure_endpoint = watched


def save_at_once() -> None:
    save = Checkpoints.save

    def watched(self: Checkpoints, *arguments: Any) -> None:
        save(self, *arguments)
        self.wait()

    Checkpoints.save = watched


if __name__ == "__main__":
    place, count = sys.argv[1], int(sys.argv[2])
    globals()[place](Countdown(count))
    save_at_once()
    command = importlib.import_module(f"experiments.{os.environ.get('KILLED_COMMAND', 'run')}")
    sys.exit(command.main(sys.argv[3:]))
