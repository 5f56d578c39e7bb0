"""Sampled accuracy of a policy on held-out problems."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinejax import policy, processes, rng, sampler
from vinejax.arrays import Finish
from vinejax.config import Config
from vinejax.grading import Faults, GraderPool
from vinejax.journal import Journal
from vinejax.statistics import Evaluation, majority, pass_at_k, summarise
from vinejax.train import exchange
from vinejax.train.setup import Prompted, Setup
from vinejax.train.trajectories import grades_of, read_response

OTHER = {"authors": "strict", "strict": "authors"}


@dataclass(frozen=True)
class Evaluated:
    """Accuracy with its interval over problems, and what else the responses showed."""

    accuracy: Evaluation  # by the grader that gives the rewards
    other_accuracy: Evaluation  # by the other one, on the same responses
    other_grader: str
    pass_at_k: dict[int, float]  # k = 2, 4, 8, ... up to the samples; unbiased
    majority: float  # accuracy of the most frequent answer (maj@n, n = samples)
    truncated_share: float  # ended by the budget, or by an error
    no_answer_share: float
    response_tokens: float  # mean
    faults: Faults  # of both graders
    counters: sampler.Counters


def evaluate(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    problems: Sequence[Prompted],
    phase: str,
    iteration: int,
) -> Evaluated:
    """Grades `evaluation.samples` responses to each problem, with both graders.

    The key depends on the seed and `phase` alone, so two policies are compared on the same
    randomness; `iteration` is what the journal files the verdicts under.
    """
    config, evaluation = setup.config, setup.config.evaluation
    trunks = sampler.Trunks.of([p.tokens for p in problems])
    budget = setup.budget(trunks.length, evaluation.max_new_tokens, evaluation.context)
    jobs = sampler.Jobs.at_ends(trunks, evaluation.samples, budget)
    samples = setup.shards.sample(
        weights,
        setup.model,
        trunks,
        jobs,
        setup.settings(evaluation.temperature, evaluation.top_p),
        rng.phase_key(config.seed, 0, phase),
        layout=setup.layout(
            setup.shards.most(len(problems)), evaluation.samples, evaluation.max_new_tokens
        ),
        wave=config.engine.wave or 512,
    )
    responses = [read_response(setup, samples, j) for j in range(len(jobs))]
    pairs = [(problems[t].problem, r.text) for t, r in zip(jobs.trunk, responses, strict=True)]
    grader = config.grading.grader
    here = setup.shards.here(len(problems))
    own_pairs = pairs[here.start * evaluation.samples : here.stop * evaluation.samples]
    gradings = [
        graders.submit(own_pairs, iteration, phase, strict=name == "strict")
        for name in (grader, OTHER[grader])
    ]
    answers = [setup.task.extract_answer(text) for _, text in pairs]
    no_answer = float(np.mean([answer is None for answer in answers]))
    truncated = np.array([r.finish in (Finish.LENGTH, Finish.ERROR) for r in responses])
    if evaluation.truncated == "wrong":  # then they have no vote, either
        answers = [None if cut else a for a, cut in zip(answers, truncated, strict=True)]
    own, other = (
        _grades(grades, truncated & (evaluation.truncated == "wrong"), len(problems))
        for grades in grades_of(gradings)
    )
    return Evaluated(
        summarise(own),
        summarise(other),
        OTHER[grader],
        {k: _pass_at(own, k) for k in _powers(evaluation.samples)},
        _majority(answers, own),
        float(truncated.mean()),
        no_answer,
        float(np.mean([len(r.tokens) for r in responses])),
        exchange.all_faults(Faults.of(v for grading in gradings for v in grading.result())),
        samples.counters,
    )


def graders_of(config: Config, journal: Journal | None = None) -> GraderPool:
    """The grading workers of this process that a configuration asks for."""
    cores = (os.cpu_count() or 1) // processes.neighbours()
    workers = config.grading.workers or max(1, min(16, cores))
    return GraderPool(
        config.task.name, config.task.arguments(), workers, config.grading.limit, journal
    )


def named(prefix: str, result: Evaluated) -> dict[str, Any]:
    """An evaluation as metrics."""
    low, high = result.accuracy.interval
    other_low, other_high = result.other_accuracy.interval
    other = f"{prefix}/{result.other_grader}_pass_at_1"
    return {
        f"{prefix}/pass_at_1": result.accuracy.pass_at_1,
        f"{prefix}/pass_at_1_low": low,
        f"{prefix}/pass_at_1_high": high,
        f"{prefix}/full_marks_share": result.accuracy.full_marks,
        **{f"{prefix}/pass_at_{k}": value for k, value in result.pass_at_k.items()},
        f"{prefix}/majority_at_{result.accuracy.samples}": result.majority,
        other: result.other_accuracy.pass_at_1,
        f"{other}_low": other_low,
        f"{other}_high": other_high,
        f"{prefix}/truncated_share": result.truncated_share,
        f"{prefix}/no_answer_share": result.no_answer_share,
        f"{prefix}/response_tokens": result.response_tokens,
        f"{prefix}/grading_errors": result.faults.share,
    }


def _grades(grades: np.ndarray, wrong: np.ndarray, problems: int) -> np.ndarray:
    """Grades [problems, samples]; 0 where `wrong`."""
    return np.where(wrong, 0.0, grades).reshape(problems, -1)


def _powers(samples: int) -> list[int]:
    return [2**e for e in range(1, samples.bit_length()) if 2**e <= samples]


def _pass_at(grades: np.ndarray, k: int) -> float:
    """Only a grade of 1 counts as right."""
    right = (grades >= 1).sum(axis=1)
    return float(pass_at_k(right, grades.shape[1], k).mean())


def _majority(answers: Sequence[str | None], grades: np.ndarray) -> float:
    samples = grades.shape[1]
    votes = [
        majority(answers[p * samples : (p + 1) * samples], row.tolist())
        for p, row in enumerate(grades)
    ]
    return float(np.mean(votes))
