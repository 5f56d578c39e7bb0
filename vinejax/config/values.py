"""What the fields of `values` mean, and which of them go together."""

from typing import Literal

from vinejax.config.errors import ConfigError
from vinejax.config.fields import Config


def every_n_tokens(states: str) -> int | None:
    """Spacing in tokens of the states that get a value, or None for one a reasoning step.

    "step" -> None, "token" -> 1, "every:16" -> 16.
    """
    kind, colon, number = states.partition(":")
    if states == "step":
        return None
    if states == "token":
        return 1
    if kind == "every" and colon and number.isascii() and number.isdigit() and int(number) > 0:
        return int(number)
    raise ConfigError(
        f"values.states is {states!r}: it must be step, token or every:N with N >= 1 (every:16)"
    )


def values_plan(plan: str) -> tuple[Literal["all", "skip", "bisect"], int]:
    """Which states are sampled, and how many samples must agree before some are left out.

    "all" -> ("all", 0), "skip:3" -> ("skip", 3), "bisect:2" -> ("bisect", 2).
    """
    kind, _, number = plan.partition(":")
    if plan == "all":
        return "all", 0
    if number.isascii() and number.isdigit() and int(number) > 1:
        if kind == "skip":
            return "skip", int(number)
        if kind == "bisect":
            return "bisect", int(number)
    raise ConfigError(
        f"values.plan is {plan!r}: it must be all, skip:N or bisect:N with N >= 2 (skip:3)"
    )


def check_values(config: Config) -> None:
    """Raise ConfigError for the first of these fields that means nothing, or not with another."""
    values = config.values
    every_n_tokens(values.states)
    _, enough = values_plan(values.plan)
    if not values.pool:
        if values.min_samples:
            raise ConfigError(
                f"values.min_samples is {values.min_samples}, but values.pool is False: without "
                "pooling a state has no samples but its k rollouts; set values.pool=true"
            )
        if enough > values.k:
            raise ConfigError(
                f"values.plan is {values.plan!r}, but a state has values.k = {values.k} samples: "
                f"nothing would be left out; use N <= {values.k}, or raise values.k"
            )
        return
    if not values.deduplicate:
        raise ConfigError(
            "values.deduplicate is False, but values.pool is True, which shares samples between "
            "states of equal tokens: set values.deduplicate=true"
        )
    if values.budget != "remaining":
        raise ConfigError(
            f"values.budget is {values.budget!r}, but values.pool is True: samples of a state "
            "would have different budgets; set values.budget=remaining"
        )
    if values.context != config.sampling.context:
        raise ConfigError(
            f"values.context is {values.context}, but values.pool is True and sampling.context is "
            f"{config.sampling.context}: rollouts and trajectories must end at the same length; "
            "set both to the same number"
        )
    if values.min_samples > values.k:
        raise ConfigError(
            f"values.min_samples is {values.min_samples}, but a state where nothing is known gets "
            f"values.k = {values.k}: use at most that many, or raise values.k"
        )
