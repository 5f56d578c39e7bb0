"""Sampled accuracy of a policy on held-out problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinejax import policy, rng, sampler
from vinejax.arrays import Finish
from vinejax.grading import GraderPool
from vinejax.statistics import Evaluation, summarise
from vinejax.train.setup import Prompted, Setup
from vinejax.train.trajectories import read_response


@dataclass(frozen=True)
class Evaluated:
    """Accuracy with its interval over problems, and what else the responses showed."""

    accuracy: Evaluation
    truncated_share: float
    no_answer_share: float
    response_tokens: float  # mean
    counters: sampler.Counters


def evaluate(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    problems: Sequence[Prompted],
    phase: str,
    iteration: int,
) -> Evaluated:
    """Grades `evaluation.samples` responses to each problem.

    Truncated ones are graded as they are (authors). The key depends on the seed and `phase` alone,
    so two policies are compared on the same randomness; `iteration` is what the journal files the
    verdicts under.
    """
    config, evaluation = setup.config, setup.config.evaluation
    trunks = sampler.Trunks.of([p.tokens for p in problems])
    budget = setup.budget(trunks.length, evaluation.max_new_tokens, evaluation.context)
    jobs = sampler.Jobs.at_ends(trunks, evaluation.samples, budget)
    samples = sampler.sample(
        weights,
        setup.model,
        trunks,
        jobs,
        setup.settings(evaluation.temperature, evaluation.top_p),
        rng.phase_key(config.seed, 0, phase),
        layout=setup.layout(len(problems), evaluation.samples, evaluation.max_new_tokens),
        wave=config.engine.wave or 512,
    )
    responses = [read_response(setup, samples, j) for j in range(len(jobs))]
    pairs = [(problems[t].problem, r.text) for t, r in zip(jobs.trunk, responses, strict=True)]
    verdicts = graders.grade(pairs, iteration, phase, strict=config.grading.grader == "strict")
    correct = np.array([v.grade for v in verdicts], np.float64).reshape(
        len(problems), evaluation.samples
    )
    answered = [setup.task.extract_answer(text) is not None for _, text in pairs]
    return Evaluated(
        summarise(correct),
        float(np.mean([r.finish == Finish.LENGTH for r in responses])),
        1 - float(np.mean(answered)),
        float(np.mean([len(r.tokens) for r in responses])),
        samples.counters,
    )
