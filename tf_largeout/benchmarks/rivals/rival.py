"""`Rival`."""

import dataclasses

from tf_largeout.benchmarks.rivals.rival_model import RivalModel


@dataclasses.dataclass(frozen=True)
class Rival:
    """One row of the table.

    Attributes:
        title: what a reader sees in tables and figures.
        model: subclass of `RivalModel`.
        settings: of the model, other than its library's defaults, on every task.
        tuned: the same by task, found on a validation split cut from the training examples.
    """

    title: str
    model: type[RivalModel]
    settings: dict = dataclasses.field(default_factory=dict)
    tuned: dict = dataclasses.field(default_factory=dict)

    def settings_for(self, task_name, **overrides):
        """Settings on a task: those of the method, the task and the caller."""
        return {**self.settings, **self.tuned.get(task_name, {}), **overrides}
