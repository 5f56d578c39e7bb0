"""Each alarm rings at its threshold, for what is no number too, and not on a healthy iteration."""

import math
from typing import Any

import pytest

from experiments.configs import get
from vinejax.config import flatten
from vinejax.train import alarms

HEALTHY = {
    "reward": 0.4, "truncated_share": 0.1, "no_answer_share": 0.1, "error_share": 0.0,
    "sampler_scorer_gap": 1e-3, "sampler_scorer_gap_max": 0.1, "advantage_spread": 0.2,
    "value_stderr": 0.1, "kl_k3": 0.05, "approx_kl": 1e-3, "clip_fraction": 0.01, "guarded": 0.0,
    "skipped": 0.0, "entropy": 0.2, "grading_errors": 0.0,
    alarms.FIRST_FAULT: "error: KeyError: 'gold'",
}  # fmt: skip

CASES = [
    ({"sampler_scorer_gap": 0.021}, "sampler and scorer"),
    ({"sampler_scorer_gap_max": 0.51}, "sampler and scorer"),
    ({"sampler_scorer_gap": math.nan}, "sampler and scorer"),
    ({"error_share": 0.01}, "errors"),
    ({"grading_errors": 0.02}, "grading"),
    ({"validation/grading_errors": 0.02}, "grading"),
    ({"skipped": 1.0}, "skipped updates"),
    ({"guarded": 2.0}, "ratio guard"),
    ({"reward": 0.0}, "equal rewards"),
    ({"reward": 1.0}, "equal rewards"),
    ({"truncated_share": 0.51}, "truncated"),
    ({"no_answer_share": 0.51}, "no answers"),
    ({"advantage_spread": 0.0}, "equal values"),
    ({"kl_k3": 0.51}, "KL"),
    ({"kl_k3": math.inf}, "KL"),
    ({"approx_kl": 0.11}, "drift"),
    ({"clip_fraction": 0.51}, "drift"),
    ({"approx_kl": math.nan}, "drift"),
    ({"entropy": 1e-4}, "entropy"),
]


def test_a_healthy_iteration_is_quiet():
    assert alarms.ringing(HEALTHY) == {}


@pytest.mark.parametrize(("change", "name"), CASES)
def test_one_alarm_rings_and_says_number_and_remedy(change: dict[str, float], name: str):
    found = alarms.ringing(HEALTHY | change)
    assert list(found) == [name]
    assert len(found[name]) > 40


def test_every_alarm_has_a_case():
    assert {name for _, name in CASES} == {alarm.name for alarm in alarms.ALARMS}


def test_a_validation_alone_can_ring():
    found = alarms.ringing({"validation/grading_errors": 1.0, alarms.FIRST_FAULT: "timeout"})
    assert list(found) == ["grading"]
    assert "100%" in found["grading"]
    assert "'timeout'" in found["grading"]


def test_a_learnt_task_may_have_no_entropy():
    assert alarms.ringing(HEALTHY | {"entropy": 1e-5, "reward": 0.995}) == {}


def test_methods_without_values_or_updates_have_no_alarm_about_them():
    sampled = {k: v for k, v in HEALTHY.items() if k not in ("value_stderr", "skipped", "guarded")}
    without = {k: v for k, v in sampled.items() if k not in ("approx_kl", "clip_fraction")}
    assert alarms.ringing(without | {"advantage_spread": 0.0}) == {}


def test_remedies_name_fields_that_exist():
    fields = {name for name, _ in flatten(get("tiny"))}
    told: dict[str, Any] = HEALTHY | {
        name: value for change, _ in CASES for name, value in change.items()
    }
    texts = " ".join(
        alarm.text(told | {"sampler_scorer_gap": 0.1, "kl_k3": 1.0}) for alarm in alarms.ALARMS
    )
    words = {word.strip(",:;()").partition("=")[0] for word in texts.split()}
    sections = {field.partition(".")[0] for field in fields if "." in field}
    named = {word for word in words if word.partition(".")[0] in sections and "." in word}
    assert len(named) > 6
    assert named <= fields, named - fields


def test_an_alarm_is_told_once_while_it_keeps_coming_back():
    bell, told = alarms.Bell(), []
    for iteration in range(1, 20):  # equal rewards at 2, 4, 6 and 15, a second alarm at 4
        rings = {"equal rewards": "all equal"} if iteration in (2, 4, 6, 15) else {}
        rings |= {"KL": "far away"} if iteration == 4 else {}
        told += bell.lines(iteration, rings)
    assert alarms.QUIET == 5
    assert told == [
        "iteration 2: all equal",
        "iteration 4: far away",
        "iteration 9: no longer: KL",
        "iteration 11: no longer: equal rewards",
        "iteration 15: all equal",
    ]
