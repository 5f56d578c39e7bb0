"""What a model card is about."""

from dataclasses import dataclass

from vinejax.config import Config
from vinejax.report.card.origin import Base
from vinejax.report.page.runs import Run
from vinejax.tasks import Task
from vinejax.tokenizer import Tokenizer


@dataclass(frozen=True)
class Exported:
    """A policy that is being written down, and what is known of it."""

    run: Run
    config: Config
    iteration: int  # after which the weights are; 0: before reinforcement learning
    parameters: int
    task: Task
    tokenizer: Tokenizer
    base: Base | None  # None: it began with random weights

    @property
    def task_name(self) -> str:
        """What the task calls itself; of one that is named module:Class not that, if it can be."""
        name = self.config.task.name
        return str(getattr(self.task, "name", None) or name.rpartition(":")[2])
