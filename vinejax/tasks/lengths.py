"""Whether a run can use the problems of a task, by the lengths of their prompts in tokens."""

from collections.abc import Sequence

from vinejax.config import Config, UserError


def check_train(config: Config, lengths: Sequence[int]) -> None:
    """Raises UserError if fewer training problems than an iteration takes have short prompts."""
    most = config.task.max_prompt_tokens
    kept = sum(length <= most for length in lengths)
    if kept < config.prompts:
        raise UserError(
            f"prompts is {config.prompts}, but only {kept} of {len(lengths)} training problems "
            f"have prompts of at most task.max_prompt_tokens = {most} tokens: lower the first or "
            "raise the second"
        )


def check_held_out(config: Config, name: str, lengths: Sequence[int]) -> None:
    """Raises UserError unless the split `name` can be evaluated."""
    if not lengths:
        raise UserError(
            f"task {config.task.name} has no {name} problem: give it more data (task.path), "
            f"or raise task.options.{name}_size if it has that"
        )
    if max(lengths) >= config.evaluation.context:
        raise UserError(
            f"evaluation.context is {config.evaluation.context}, "
            f"but a {name} prompt has {max(lengths)} tokens: raise it"
        )
