"""What a finished run has come to, beyond its accuracy: KL to the start, error of its values."""

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinejax import policy, report
from vinejax.checkpoint import Checkpoints
from vinejax.grading import GraderPool
from vinejax.report import Progress
from vinejax.train import algorithms, folder, measures, trajectories
from vinejax.train.algorithms.base import Algorithm, Context, PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.evaluation import graders_of
from vinejax.train.learning import Learner, decode_weights
from vinejax.train.run import params_of
from vinejax.train.setup import Setup, prepare
from vinejax.train.stopping import StopRequest
from vinejax.train.truth import draw_states, true_value

FILE = "endpoint.json"
VALUES = ("value_error", "value_error_constant", "value_correlation", "states")


def measure_endpoint(out: Path, states: int, rollouts: int) -> dict[str, Any]:
    """Measures the last policy of the finished run in `out`; writes and returns endpoint.json.

    kl_k1 and kl_k3 are its KL to the start, nats a token, over the episodes that one more iteration
    would have sampled. value_error and value_correlation compare the method's values at `states`
    states of such episodes with the means of `rollouts` fresh rollouts; value_error_constant is the
    error of giving each state the mean. They are None for methods without values, and with
    `states` 0. What is there already is read. Raises UserError if there is no run.
    """
    asked = {"states_asked": states, "rollouts": rollouts}
    if (out / FILE).exists():
        known = json.loads((out / FILE).read_text())
        if asked.items() <= known.items():
            return known
    config = folder.read_config(out)
    setup, untrained = prepare(config)
    start = params_of(out, config, untrained, iteration=0)[0]
    params, iteration = params_of(out, config, untrained)
    weights, reference = (decode_weights(setup, p) for p in (params, start))
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(iteration, start_iteration=iteration))
        graders = stack.enter_context(graders_of(config))
        stop = StopRequest(progress.note)  # never asked: all this is done again if it is cut short
        again = partial(_copy, start)
        context = Context(
            setup, out, Learner(setup, params, out), reference, again, graders, progress, stop
        )
        method = algorithms.get(config.algorithm)(context)
        method.state = _state(out, method, iteration)
        progress.phase("endpoint")
        batch = trajectories.collect(setup, weights, graders, iteration, 0, Clock())
        scores = [method.score(w, batch) for w in (weights, reference)]
        found = measures.of_policy(batch, *scores)
        result = {name: found[name] for name in ("kl_k1", "kl_k3")}
        result |= _errors(setup, method, weights, graders, iteration, states, rollouts)
    report.write_json(out / FILE, asked | result)
    return asked | result


def _copy(params: policy.Params) -> policy.Params:
    return jax.tree.map(lambda x: x.copy(), params)


def _state(out: Path, method: Algorithm, iteration: int) -> Any:
    """The method's arrays in the run's newest checkpoint."""
    if not jax.tree.leaves(method.state):
        return method.state
    with Checkpoints(out / "checkpoints" / "policy", read_only=True) as checkpoints:
        tree, _ = checkpoints.restore(iteration, {"algorithm": method.state}, partial=True)
    return tree["algorithm"]


def _errors(
    setup: Setup,
    method: Algorithm,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    iteration: int,
    states: int,
    rollouts: int,
) -> dict[str, Any]:
    """How far the method's values are from the truth, over states of its own episodes."""
    drawn = []
    if states and isinstance(method, PolicyGradient):

        def assign(i: int, batch: trajectories.Trajectories) -> Credit:
            return method.assign(i, batch, weights, Clock())

        drawn = draw_states(setup, weights, graders, states, assign, iteration)
    if not drawn:
        return dict.fromkeys(VALUES)
    truth = true_value(setup, weights, graders, drawn, rollouts)
    estimates = np.array([s.estimate for s in drawn])
    varies = np.ptp(estimates) > 0 and np.ptp(truth) > 0
    found = (
        float(np.abs(estimates - truth).mean()),
        float(np.abs(truth - truth.mean()).mean()),
        float(np.corrcoef(estimates, truth)[0, 1]) if varies else None,
        len(drawn),
    )
    return dict(zip(VALUES, found, strict=True))
