"""A whole run: checks, supervised fine-tuning, the method, evaluation, what is left on disk."""

import contextlib
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinejax import policy, processes, report, tasks
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, UserError
from vinejax.grading import GraderPool
from vinejax.report import Progress, page
from vinejax.tasks import overlap
from vinejax.tokenizer import Tokenizer
from vinejax.train import algorithms, candidates, folder, supervised, taken
from vinejax.train.algorithms.base import Context
from vinejax.train.evaluation import Evaluated, evaluate, graders_of, named
from vinejax.train.learning import Learner, decode_weights
from vinejax.train.loop import Reinforcement, newest_iteration
from vinejax.train.setup import Setup, prepare
from vinejax.train.start import find_tokenizer, start_params, start_policy
from vinejax.train.stopping import StopRequest
from vinejax.train.watchdog import Watchdog


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    start: Path | None = None,
    profile: int = 0,
) -> dict[str, Any]:
    """Trains `config` in the folder `out` and returns the summary that is written there.

    With `resume` a run that is in `out` goes on from its newest checkpoint, to the same numbers as
    if it had never stopped; a finished one is only summed up again. `start` is the folder of a
    finished run with the same SFT, whose result is taken, bit for bit, instead of being computed
    again. Of iteration `profile` a profile is written. Raises UserError for bad input before
    anything is written, Preempted after SIGTERM or Ctrl-C, when the run has been saved, RunError
    where it cannot go on, and StorageError where the disk takes no more.
    """
    folder.check_same(config)
    holds_run = processes.on_first(partial(folder.check, out, config, resume))
    if start is not None:
        processes.on_first(partial(taken.check, start, config))
    done = processes.on_first(partial(folder.finished, out, config)) if holds_run else None
    if done is not None:
        if processes.is_first():
            report.print_summary(done)
        return done
    with folder.storing(out):
        return _work(config, out, start, profile)


def _work(config: Config, out: Path, start: Path | None, profile: int) -> dict[str, Any]:
    """All of a run that its folder was found to be fit for."""
    begin = time.perf_counter()
    setup, params, examples = processes.together(partial(_prepare, config))
    processes.on_first(partial(_begin, setup, out, start))
    folder.check_shared(out)
    with contextlib.ExitStack() as stack:
        newest = newest_iteration(out)
        shown = None if processes.is_first() else stack.enter_context(open(os.devnull, "w"))
        progress = stack.enter_context(Progress(folder.iterations(config), shown, newest))
        stack.enter_context(Watchdog(progress))
        stop = stack.enter_context(StopRequest(progress.note))
        journal = stack.enter_context(folder.open_journal(out, newest))
        graders = stack.enter_context(graders_of(config, journal))
        for line in _about_data(setup):
            progress.note(line)
        if examples:
            progress.phase("supervised")
            params = candidates.fine_tune(setup, params, examples, out, graders, progress, stop)
        learner, reference = Learner(setup, params, out), decode_weights(setup, params)
        del params
        again = partial(_start_again, setup, out)
        context = Context(setup, out, learner, reference, again, graders, progress, stop, profile)
        training = stack.enter_context(Reinforcement(context, journal))
        training.run()
        summary = _summarise(setup, training, reference, graders, progress)
    return processes.on_first(partial(_end, setup, out, summary, begin))


def _prepare(
    config: Config,
) -> tuple[Setup, policy.Params, list[supervised.Demonstration]]:
    """What the run needs, or a UserError."""
    algorithms.get(config.algorithm)  # what cannot be imported is bad input, too
    setup, params = prepare(config)
    return setup, params, supervised.demonstrations(setup) if folder.fine_tunes(config) else []


def _about_data(setup: Setup) -> list[str]:
    """What a person should know of the problems."""
    found = []
    if setup.left_out:
        found.append(
            f"{setup.left_out} training problems are left out: prompt over task.max_prompt_tokens"
        )
    train = [p.problem for p in setup.train]
    for name, held_out in (("validation", setup.validation), ("test", setup.test)):
        twice = overlap.shared(train, [p.problem for p in held_out])
        if twice:
            found.append(
                f"{len(twice)} of {len(held_out)} {name} problems are also training problems, "
                f"{twice[0].id} is one: take them out of one of the two"
            )
    return found


def _begin(setup: Setup, out: Path, start: Path | None) -> None:
    """The first files of the run folder."""
    folder.write(out, setup.config)
    if start is not None:
        taken.take(start, out)
    held_out = {"validation": setup.validation, "test": setup.test}
    ids = {name: [p.problem.id for p in problems] for name, problems in held_out.items()}
    report.write_json(out / "problems.json", ids)


def _end(setup: Setup, out: Path, summary: dict[str, Any], begin: float) -> dict[str, Any]:
    """The whole summary, written and shown, and the report."""
    summary |= report.costs(report.read_metrics(out))
    summary["seconds"] = _seconds(out, time.perf_counter() - begin)
    report.write_summary(out, summary)
    report.print_summary(summary)
    page.try_to_write_page([out], out / page.FILE, setup.tokenizer)
    return summary


def _start_again(setup: Setup, out: Path) -> policy.Params:
    """The parameters that the run's reinforcement learning starts from, read from disk."""
    untrained = start_params(setup.config, setup.model, setup.mesh)
    return params_of(out, setup.config, untrained, iteration=0)[0]


def load_policy(
    out: Path, iteration: int | None = None
) -> tuple[policy.LlamaConfig, policy.Params, Tokenizer]:
    """Model configuration, parameters and tokenizer of a run.

    They are those of its newest checkpoint, or of the SFT policy; with `iteration` of that
    checkpoint. Raises UserError if `out` holds no run, or none that has a checkpoint yet.
    """
    config = folder.read_config(out)
    tokenizer = find_tokenizer(config, tasks.get(config.task.name, **config.task.arguments()))
    model, params = start_policy(config, tokenizer)
    params, _ = params_of(out, config, params, iteration)
    return model, params, tokenizer


def params_of(
    out: Path,
    config: Config,
    start: policy.Params,
    iteration: int | None = None,
    best: bool = False,
) -> tuple[policy.Params, int]:
    """Parameters of a run's newest checkpoint, of that of an iteration, or of the best one; and the
    iteration, which is 0 for the policy after SFT.

    `start` are the parameters before any training; where these lie on several devices, so does the
    result. Raises UserError if there is none yet, and CheckpointError, which names those that there
    are, if the iteration's is not kept.
    """
    master = jax.tree.map(_master, start)
    names = ["best" if best else "policy", "sft"]
    if iteration is not None:
        names = names[:1] if iteration else names[1:]
    for name in names:
        path = out / "checkpoints" / name
        if not processes.on_first(path.is_dir):
            continue
        with Checkpoints(path, read_only=True) as checkpoints:
            step = (name == "policy" and iteration) or checkpoints.latest()
            if step is not None:
                tree, _ = checkpoints.restore(step, {"params": master}, partial=True)
                return tree["params"], 0 if name == "sft" else step
    if folder.fine_tunes(config) or iteration:
        raise UserError(
            f"--run is {out}, which has no checkpoint yet: let it run until the first one"
        )
    return start, 0


def _master(x: jax.Array) -> jax.ShapeDtypeStruct:
    placed = x.sharding if len(x.sharding.device_set) > 1 else None
    return jax.ShapeDtypeStruct(x.shape, np.float32, sharding=placed)


def _summarise(
    setup: Setup,
    training: Reinforcement,
    reference: policy.DecodeWeights,
    graders: GraderPool,
    progress: Progress,
) -> dict[str, Any]:
    """Test accuracy of the first, the last and the best policy, on the same randomness."""
    config = setup.config
    progress.phase("test")

    def test(weights: policy.DecodeWeights) -> Evaluated:
        return evaluate(setup, weights, graders, setup.test, "test", training.iteration)

    results = {"sft": test(reference)}
    results["final"] = test(training.learner.weights()) if training.iteration else results["sft"]
    if training.best.iteration == training.iteration:
        results["best"] = results["final"]
    else:
        params = training.best_params()
        results["best"] = results["sft"] if params is None else test(decode_weights(setup, params))
    summary: dict[str, Any] = {
        "algorithm": config.algorithm,
        "task": config.task.name,
        "seed": config.seed,
    }
    for name, result in results.items():
        summary |= _numbers(name, result)
    return summary | {
        "best_iteration": training.best.iteration,
        "best_validation_pass_at_1": training.best.pass_at_1,
        "problems": len(setup.test),
        "samples": config.evaluation.samples,
        "iterations": training.iteration,
        "episodes": training.iteration * config.episodes,
    }


def _numbers(name: str, result: Evaluated) -> dict[str, Any]:
    """An evaluation as entries of the summary: NAME_pass_at_1 and so on, intervals as pairs."""
    ends = ("_low", "_high")
    entries = {
        f"{name}_{key.partition('/')[2]}": value
        for key, value in named("test", result).items()
        if not key.endswith(ends)
    }
    return entries | {
        f"{name}_interval": list(result.accuracy.interval),
        f"{name}_{result.other_grader}_interval": list(result.other_accuracy.interval),
    }


def _seconds(out: Path, latest: float) -> float:
    """Seconds of work on the run, including the iterations that earlier processes wrote down."""
    logged = sum(line.get("time/iteration", 0.0) for line in report.read_metrics(out))
    return max(latest, logged)
