"""Values of trajectories that are given as texts, whoever wrote them.

They are measured as training measures those that it has sampled (`train.credit`): one pass over
each trajectory gives the KV from which the rollouts of all its states grow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from vinejax import sampler, stop
from vinejax.arrays import Finish
from vinejax.config import Config, UserError
from vinejax.tasks import Problem
from vinejax.train import credit, trajectories
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.evaluation import graders_of
from vinejax.train.learning import decode_weights
from vinejax.train.run import params_of
from vinejax.train.setup import Prompted, Setup, prepare_policy
from vinejax.train.trajectories import Response, Trajectories


@dataclass(frozen=True)
class Valued:
    """A trajectory of n states, s_0 (the prompt) to s_{n-1}, and what they are worth."""

    problem: Problem
    steps: list[str]  # n texts, from each state to the next one; joined they are the response
    values: np.ndarray  # fp32 [n], mean rewards of k rollouts; standard error 0.5 / sqrt(k) at most
    advantages: np.ndarray  # fp32 [n], of each step, raw; their sum is reward - values[0]
    reward: float


def values_of(
    config: Config,
    given: Sequence[tuple[Problem, str]],
    *,
    run: Path | None = None,
    iteration: int | None = None,
    k: int | None = None,
) -> list[Valued]:
    """Monte Carlo values and step advantages of responses to problems, under a policy.

    given: a response is all text behind the task's prompt, taken to have ended by itself; what
    follows a stop string is left out. Problems with the same id are the same problem.
    config: task, sampling, values and grading as in training, and the policy, `policy.path`.
    run: the folder of a run whose configuration `config` is (`train.read_config`): its newest
    checkpoint is the policy instead, or that of `iteration` (0 = after SFT).
    k: rollouts from each state; None = `values.k`.

    Only rollouts count (no `values.pool`, no `values.plan`): what is given need not come from the
    policy. Raises UserError for bad input, such as a response that is longer than `values.context`.
    """
    k = config.values.k if k is None else k
    rules = replace(config.values, k=k, pool=False, min_samples=0, plan="all")
    config = replace(config, values=rules, advantages=replace(config.advantages, permute=False))
    setup, params = prepare_policy(config)
    if not given:
        return []
    pairs = _in_tokens(setup, given)
    if run is not None:
        params, _ = params_of(run, config, params, iteration)
    # One response a prompt, each by itself: whose problems are equal share states all the same.
    setup = replace(setup, config=replace(config, prompts=len(given), samples=1))
    with graders_of(config) as graders:
        prompted, responses = zip(*pairs, strict=True)
        none = sampler.Counters()
        batch = trajectories.graded(setup, graders, prompted, responses, 0, 0, none)
        weights = decode_weights(setup, params)
        found = credit.assign(setup, weights, graders, 0, batch, Clock())
    return [_valued(setup, batch, found, m) for m in range(len(given))]


def _in_tokens(
    setup: Setup, given: Sequence[tuple[Problem, str]]
) -> list[tuple[Prompted, Response]]:
    """As if they had been sampled, an end-of-sequence token behind each response."""
    tokenizer, most, known, found = setup.tokenizer, setup.config.values.context, {}, []
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    for m, (problem, text) in enumerate(given):
        if known.setdefault(problem.id, problem) != problem:
            raise UserError(
                f"trajectory {m}: another problem has the id {problem.id!r}, too; give each its own"
            )
        text = text[: stop.find(text, setup.task.stop)]
        try:
            prompt, ids = tokenizer.encode_pair(setup.task.prompt(problem), text)
        except ValueError as error:
            raise UserError(f"trajectory {m}: {error}") from error
        if tokenizer.decode(ids) != text:
            raise UserError(
                f"trajectory {m}: the tokenizer changes its text {text[:40]!r}; write it otherwise"
            )
        if len(prompt) + len(ids) > most:
            raise UserError(
                f"trajectory {m} has {len(prompt) + len(ids)} tokens, prompt included, but "
                f"values.context is {most}: raise it, or leave the trajectory out"
            )
        tokens = np.array([*ids, tokenizer.eos_id], np.int32)
        nothing = np.zeros(len(tokens), np.float32)
        response = Response(tokens, text, Finish.EOS, nothing, nothing, tokens)
        found.append((Prompted(problem, np.array([*bos, *prompt], np.int32)), response))
    return found


def _valued(setup: Setup, batch: Trajectories, found: Credit, m: int) -> Valued:
    response = batch.responses[m]
    starts = setup.tokenizer.char_starts(response.tokens.tolist())
    edges = [*(starts[token] for token in batch.states[m].starts), len(response.text)]
    assert found.values is not None
    return Valued(
        batch.problems[m],
        [response.text[a:b] for a, b in pairwise(edges)],
        found.values[m],
        found.step_advantages[m],
        float(batch.reward[m]),
    )
