"""What an evaluation makes of its responses, on sampled text of a random policy."""

from dataclasses import replace

import numpy as np
import pytest

from tests.train.enumerable import CONFIG, Majority, setup_of, weights
from vinejax import sampler
from vinejax.arrays import Finish
from vinejax.config import GradingConfig
from vinejax.grading import GraderPool
from vinejax.statistics import pass_at_k, summarise
from vinejax.train import evaluation
from vinejax.train.trajectories import read_response

SAMPLES = 6


class TwoGraders(Majority):
    """The second grader takes nothing."""

    def grade_strict(self, problem, response):
        return 0.0

    def extract_answer(self, response):
        return response[:1] or None


def evaluated(monkeypatch, grader="authors", truncated="graded", **changes):
    """An evaluation, and its responses [problems][samples] with problem."""
    config = replace(
        CONFIG,
        grading=GradingConfig(grader=grader),
        evaluation=replace(
            CONFIG.evaluation,
            samples=SAMPLES,
            temperature=1.0,
            top_p=1.0,
            max_new_tokens=4,
            context=CONFIG.sampling.context,
            truncated=truncated,
            **changes,
        ),
    )
    setup = replace(setup_of(config), task=TwoGraders())
    seen = []
    original = sampler.sample

    def sample(*args, **kwargs):
        samples = original(*args, **kwargs)
        seen.extend(read_response(setup, samples, j) for j in range(len(samples.length)))
        return samples

    monkeypatch.setattr(sampler, "sample", sample)
    name = f"{TwoGraders.__module__}:{TwoGraders.__name__}"
    with GraderPool(name, {}, workers=0) as graders:
        found = evaluation.evaluate(setup, weights(), graders, setup.train, "test", 0)
    rows = [
        (prompted.problem, seen[p * SAMPLES : (p + 1) * SAMPLES])
        for p, prompted in enumerate(setup.train)
    ]
    return found, rows


def grades_of(rows):
    return np.array([[TwoGraders().grade(p, r.text) for r in row] for p, row in rows])


def test_both_graders_see_the_same_responses(monkeypatch):
    found, rows = evaluated(monkeypatch)
    grades = grades_of(rows)
    assert 0 < grades.mean() < 1
    assert found.accuracy == summarise(grades)
    assert found.other_grader == "strict"
    assert found.other_accuracy == summarise(np.zeros_like(grades))
    metrics = evaluation.named("validation", found)
    assert metrics["validation/pass_at_1"] == grades.mean()
    assert metrics["validation/strict_pass_at_1"] == 0


def test_the_strict_grader_as_the_configured_one(monkeypatch):
    found, rows = evaluated(monkeypatch, grader="strict")
    assert found.accuracy.pass_at_1 == 0
    assert found.other_grader == "authors"
    metrics = evaluation.named("test", found)
    assert metrics["test/authors_pass_at_1"] == pytest.approx(grades_of(rows).mean())


def test_pass_at_k_for_powers_of_two_up_to_the_samples(monkeypatch):
    found, rows = evaluated(monkeypatch)
    right = (grades_of(rows) >= 1).sum(axis=1)
    assert list(found.pass_at_k) == [2, 4]
    for k, value in found.pass_at_k.items():
        assert value == pass_at_k(right, SAMPLES, k).mean()


def test_majority_takes_the_first_of_equally_frequent_answers(monkeypatch):
    found, rows = evaluated(monkeypatch)
    expected = []
    for problem, row in rows:
        answers = [r.text[:1] for r in row if r.text]
        best = max(answers, key=lambda a: (answers.count(a), -answers.index(a)))
        first = next(r for r in row if r.text[:1] == best)
        expected.append(TwoGraders().grade(problem, first.text))
    assert found.majority == np.mean(expected)


def test_truncated_responses_are_graded_or_wrong(monkeypatch):
    graded, rows = evaluated(monkeypatch)
    cut = np.array([[r.finish == Finish.LENGTH for r in row] for _, row in rows])
    grades = grades_of(rows)
    assert (grades * cut).sum() > 0
    assert graded.accuracy == summarise(grades)
    wrong, _ = evaluated(monkeypatch, truncated="wrong")
    assert wrong.accuracy == summarise(np.where(cut, 0, grades))
    assert wrong.truncated_share == graded.truncated_share == cut.mean()
    assert wrong.no_answer_share == graded.no_answer_share
