"""`Rival`."""

import dataclasses

from benchmarks.rivals.rival_model import RivalModel


@dataclasses.dataclass(frozen=True)
class Rival:
    """One row of the table.

    Attributes:
        title: name in tables and figures.
        model: subclass of `RivalModel`.
        settings: settings of the model that differ from its library's defaults.
        tuned: such settings by task, found on a part of the training examples.
    """

    title: str
    model: type[RivalModel]
    settings: dict = dataclasses.field(default_factory=dict)
    tuned: dict = dataclasses.field(default_factory=dict)

    def settings_for(self, task_name, **overrides):
        """Returns the settings on a task: those of the method, the task and the caller."""
        return {**self.settings, **self.tuned.get(task_name, {}), **overrides}
