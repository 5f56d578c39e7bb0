"""What a person should look at in an iteration's metrics, and from which number on.

A run goes on in all of these cases: none is wrong for certain. All thresholds are here; but for
those of the gap they are round numbers far from what healthy runs of ours show.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Mean and largest difference in nats between sampler and scorer above which something is wrong with
# one of them (verl's and TRL's experience: rounding to bfloat16 alone gives 0.01 and 0.1).
GAP_MEAN, GAP_MAX = 0.02, 0.5
GRADING = 0.01  # share of the answers that the grader failed on
TRUNCATED = 0.5  # share of the responses that were cut off
NO_ANSWER = 0.5  # share of the responses without an answer
KL = 0.5  # nats a token to the start (k3)
DRIFT = 0.1  # nats a token within an iteration (k3 of old against new)
CLIPPED = 0.5  # share of the tokens whose ratio is clipped
ENTROPY = 1e-3  # nats a token, while there is still something to learn
LEARNT = 0.99  # mean reward from which on a sure policy is a good one

QUIET = 5  # iterations without an alarm after which it has stopped

FIRST_FAULT = "first_grading_error"  # its text: no metric, since it may be another in each run

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Alarm:
    """One thing to look at: when it rings, what it says, and what to do about it."""

    name: str
    rings: Callable[[Metrics], bool]
    text: Callable[[Metrics], str]


def _above(name: str, most: float) -> Callable[[Metrics], bool]:
    """Rings above `most` and for what is no number; silent where the metric is missing."""
    return lambda m: name in m and not (m[name] is not None and m[name] <= most)


def _failed(metrics: Metrics) -> float:
    """Share of the answers that the grader failed on: of training or of the validation."""
    return max(metrics.get(f"{where}grading_errors", 0.0) for where in ("", "validation/"))


ALARMS = (
    Alarm(
        "sampler and scorer",
        lambda m: (
            _above("sampler_scorer_gap", GAP_MEAN)(m)
            or _above("sampler_scorer_gap_max", GAP_MAX)(m)
        ),
        lambda m: (
            f"sampler and scorer disagree by {m['sampler_scorer_gap']:.3f} nats a token (at most "
            f"{m['sampler_scorer_gap_max']:.2f}): they do not compute the same policy; try "
            "engine.attention=xla and policy.attention=xla"
        ),
    ),
    Alarm(
        "errors",
        _above("error_share", 0),
        lambda m: (
            f"{m['error_share']:.0%} of the responses ended in an error: the policy's logits are "
            "not finite; go back to an earlier checkpoint, or lower update.learning_rate"
        ),
    ),
    Alarm(
        "skipped updates",
        _above("skipped", 0),
        lambda m: (
            f"{m['skipped']:.0f} updates were skipped, since their gradients were not finite: "
            "lower update.learning_rate"
        ),
    ),
    Alarm(
        "ratio guard",
        _above("guarded", 0),
        lambda m: (
            f"the ratio guard (update.ratio_guard) took the losses of {m['guarded']:.0f} updates "
            "to 0: lower update.learning_rate or update.epochs"
        ),
    ),
    Alarm(
        "grading",
        lambda m: _failed(m) > GRADING,
        lambda m: (
            f"the grader failed on {_failed(m):.0%} of the answers, which are worth 0 for that, "
            f"the first time with {m[FIRST_FAULT]!r} (verdicts.jsonl has all): correct the task's "
            "grade method, or raise grading.limit where it says timeout"
        ),
    ),
    Alarm(
        "equal rewards",
        lambda m: m.get("reward") in (0.0, 1.0),
        lambda m: (
            f"all rewards are {m['reward']:.0f}, so there is nothing to learn from: look at the "
            "texts in rollouts/ and at the grader; take easier or harder problems"
        ),
    ),
    Alarm(
        "truncated",
        _above("truncated_share", TRUNCATED),
        lambda m: (
            f"{m['truncated_share']:.0%} of the responses were cut off: raise "
            "sampling.max_new_tokens, or look why they do not end"
        ),
    ),
    Alarm(
        "no answers",
        _above("no_answer_share", NO_ANSWER),
        lambda m: (
            f"no answer was found in {m['no_answer_share']:.0%} of the responses: compare the "
            "texts in rollouts/ with what the task extracts; more SFT teaches the format"
        ),
    ),
    Alarm(
        "equal values",
        lambda m: "value_stderr" in m and m["advantage_spread"] == 0 and 0 < m["reward"] < 1,
        lambda m: (
            "all step advantages are 0 though rewards differ: look at values.k and at the states "
            "in rollouts/"
        ),
    ),
    Alarm(
        "KL",
        _above("kl_k3", KL),
        lambda m: (
            f"the policy is {m['kl_k3']:.2f} nats a token away from its start: lower "
            "update.learning_rate or raise update.kl"
        ),
    ),
    Alarm(
        "drift",
        lambda m: _above("approx_kl", DRIFT)(m) or _above("clip_fraction", CLIPPED)(m),
        lambda m: (
            f"the updates of one iteration moved the policy by {m['approx_kl']:.2f} nats a token "
            f"and clipped {m['clip_fraction']:.0%} of the ratios: lower update.learning_rate or "
            "update.epochs"
        ),
    ),
    Alarm(
        "entropy",
        lambda m: "entropy" in m and m["entropy"] <= ENTROPY and m["reward"] < LEARNT,
        lambda m: (
            f"the policy's entropy is {m['entropy']:.1e} nats a token: samples of a problem are "
            "all alike and teach nothing; lower update.learning_rate or raise sampling.temperature"
        ),
    ),
)


def ringing(metrics: Metrics) -> dict[str, str]:
    """The alarms that ring, and what they say.

    With the metrics of an iteration, or of a validation alone; and `FIRST_FAULT`, where
    `grading_errors` is not 0.
    """
    return {alarm.name: alarm.text(metrics) for alarm in ALARMS if alarm.rings(metrics)}


class Bell:
    """Says when alarms begin to ring, and when they have not for `QUIET` iterations.

    One that rings every other iteration is told once.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # iteration in which each alarm rang last

    def lines(self, iteration: int, rings: Mapping[str, str]) -> list[str]:
        """What to say after an iteration; `rings` is of `ringing`."""
        begun = [text for name, text in rings.items() if name not in self._last]
        self._last |= dict.fromkeys(rings, iteration)
        over = [name for name, last in self._last.items() if iteration - last >= QUIET]
        for name in over:
            del self._last[name]
        told = [*begun, *(f"no longer: {name}" for name in over)]
        return [f"iteration {iteration}: {text}" for text in told]
