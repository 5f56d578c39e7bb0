"""Comparisons of methods by hand: intervals over seeds, costs up to a level, tables."""

import math
from dataclasses import replace
from typing import Any

import pytest

from vinejax.config import Config, UpdateConfig
from vinejax.report.comparison import Outcome, compare, markdown, over_seeds, tables
from vinejax.report.curve import Curve, curve
from vinejax.statistics import interval_of_mean

# 8 episodes and 2 epochs x 2 minibatches an iteration.
CONFIG = Config(prompts=4, samples=2, iterations=4, update=UpdateConfig(epochs=2, minibatch=4))


def line(iteration: int, cpu: float, accuracy: float | None = None, **more: Any) -> dict[str, Any]:
    """Metrics of an iteration with `cpu` seconds of training, and 5 of validation if there is one.

    It sampled 100 tokens.
    """
    entries = {"iteration": iteration, "time/cpu_seconds/iteration": cpu, "tokens_sampled": 100}
    if accuracy is not None:
        entries["validation/pass_at_1"] = accuracy
        entries["time/cpu_seconds/validation"] = 5.0
        entries["time/cpu_seconds/iteration"] = cpu + 5.0
    return entries | more


def test_the_interval_over_seeds_by_hand():
    # Mean 0.6, deviations -0.1, 0, 0.1: s = 0.1, s.e. = 0.1 / sqrt(3), t(2) = 4.3027.
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert interval_of_mean([0.5, 0.6, 0.7]) == pytest.approx((0.6 - half, 0.6 + half), abs=1e-4)
    assert over_seeds([0.5, 0.6, 0.7], 0.0, 1.0)["interval"] == pytest.approx(
        [0.6 - half, 0.6 + half], abs=1e-4
    )
    # 0.9 and 1: s.e. = 0.05, t(1) = 12.706: cut to what an accuracy can be.
    assert interval_of_mean([0.9, 1.0]) == pytest.approx((0.95 - 0.6353, 0.95 + 0.6353), abs=1e-4)
    assert over_seeds([0.9, 1.0], 0.0, 1.0)["interval"] == pytest.approx([0.3147, 1.0], abs=1e-4)


def test_one_seed_has_no_interval():
    assert interval_of_mean([0.5]) == (-math.inf, math.inf)
    assert over_seeds([0.5], 0.0, 1.0) == {"by_seed": [0.5], "mean": 0.5, "interval": None}


def test_costs_up_to_a_level_are_linear_between_validations():
    lines = [line(1, 10.0), line(2, 20.0, 0.5), line(3, 7.0), line(4, 7.0, 0.4)]
    found = curve(CONFIG, 0.1, lines)
    assert found.pass_at_1 == [0.1, 0.5, 0.4]
    assert found.episodes == [0, 16, 32]
    assert found.updates == [0, 8, 16]
    assert found.cpu_seconds == [0, 30, 44]  # without the two validations
    # 0.3 is half of the way from 0.1 to 0.5.
    costs = [found.reach(0.3, cost) for cost in ("episodes", "updates", "cpu_seconds")]
    assert costs == pytest.approx([8, 4, 15])
    assert found.reach(0.5, "episodes") == pytest.approx(16)
    assert found.reach(0.1, "episodes") == found.reach(0.05, "updates") == 0
    assert found.reach(0.51, "episodes") is None


def test_the_first_crossing_counts_even_if_the_accuracy_falls_again():
    found = Curve([0.0, 0.4, 0.2, 0.8], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], False)
    assert found.reach(0.4, "episodes") == 1
    assert found.reach(0.5, "episodes") == pytest.approx(2.5)


def test_methods_that_train_once_a_round_come_to_a_level_at_its_end():
    config = replace(CONFIG, algorithm="restem")
    lines = [
        *(line(1, 1.0), line(2, 9.0, 0.3, **{"training/updates": 7})),
        *(line(3, 1.0), line(4, 9.0, 0.6, **{"training/updates": 5})),
    ]
    found = curve(config, 0.1, lines)
    assert found.updates == [0, 7, 12]
    assert [found.reach(0.2, cost) for cost in ("episodes", "updates", "cpu_seconds")] == [
        16,
        7,
        10,
    ]
    assert found.reach(0.31, "cpu_seconds") == 20


def outcome(algorithm: str, seed: int, final: float, *lines: dict[str, Any]) -> Outcome:
    values = {"value_error": 0.1, "value_error_constant": 0.3, "value_correlation": 0.9}
    phases = {"iteration": 30.0, "validation": 10.0, "update": 12.0}
    return Outcome(
        replace(CONFIG, algorithm=algorithm, seed=seed),
        {
            **{f"{policy}_pass_at_1": final for policy in ("sft", "final", "best")},
            "episodes": 32,
            "seconds_by_phase": phases,
            "seconds_of_cpu_by_phase": phases,
        },
        lines,
        {"kl_k1": 0.2, "kl_k3": 0.25} | (values if algorithm == "ppo" else dict.fromkeys(values)),
        0.1,
    )


def test_a_whole_comparison_by_hand():
    result = compare(
        [
            outcome("grpo", 0, 0.5, line(2, 20.0, 0.5), line(4, 20.0, 0.9)),
            outcome("grpo", 1, 0.7, line(2, 20.0, 0.2), line(4, 20.0, 0.3)),
            outcome("ppo", 0, 0.6, line(2, 10.0, 0.7), line(4, 10.0, 0.6)),
            outcome("ppo", 1, 0.6, line(2, 10.0, 0.3), line(4, 10.0, 0.5)),
        ]
    )
    assert result["seeds"] == [0, 1]
    assert result["levels"]["PPO's best"] == [0.7, 0.5]
    grpo = result["methods"]["grpo"]
    assert grpo["pass_at_1"]["final"]["by_seed"] == [0.5, 0.7]
    assert grpo["tokens_sampled"] == [200, 200]
    # Seed 0: half of the way from 0.5 to 0.9. Seed 1 never comes to PPO's 0.5.
    to_best = grpo["to_level"]["PPO's best"]
    assert to_best["episodes"] == [pytest.approx(24), None]
    assert to_best["cpu_seconds"] == [pytest.approx(30), None]
    text = tables(result)
    assert "60.0 (0.0 to 100.0)" in text  # t(1) = 12.706 x 0.1
    assert "PPO's best, 60.0" in text
    assert "24 / 6 / 30.0 (1 of 2)" in text  # a line is 4 updates, two lines are 8
    assert "0.100 (0.300)" in text
    level_90 = [row.split("|")[-2].strip() for row in text.splitlines() if row.startswith("| ppo")]
    assert level_90[-1] == "-"


def test_the_best_of_ppo_and_grpo_are_levels_where_they_take_part():
    result = compare([outcome("rloo", 3, 0.5, line(2, 20.0, 0.5))])
    assert list(result["levels"]) == ["0.3", "0.5", "0.7", "0.9"]
    result = compare([outcome("grpo", 3, 0.5, line(2, 20.0, 0.5))])
    assert list(result["levels"]) == ["GRPO's best", "0.3", "0.5", "0.7", "0.9"]
    assert "seed" not in tables(result).partition("\n")[0]


def test_settings_of_one_method_can_be_rows_of_their_own():
    one, other = (outcome("vineppo", 0, final, line(2, 20.0, final)) for final in (0.4, 0.6))
    result = compare([replace(one, arm="K = 1"), replace(other, arm="K = 9")])
    found = {name: m["pass_at_1"]["final"]["mean"] for name, m in result["methods"].items()}
    assert found == {"K = 1": 0.4, "K = 9": 0.6}


def test_a_table_is_aligned():
    assert markdown(["a", "value"], [["long name", "1"], ["b", "10"]]).splitlines() == [
        "| a         | value |",
        "| --------- | ----: |",
        "| long name |     1 |",
        "| b         |    10 |",
    ]
