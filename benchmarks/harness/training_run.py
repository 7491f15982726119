"""`TrainingRun`."""

import dataclasses

from benchmarks.harness.process_run import ProcessRun
from benchmarks.methods.method_table import METHODS


@dataclasses.dataclass(frozen=True)
class TrainingRun(ProcessRun):
    """A model trained on a task for a given time.

    Attributes:
        method: key of `methods`.
        directory: the folder of the log and the checkpoints.
        seconds: training time without evaluations.
        every: seconds of training from one evaluation to the next.
        sample: test examples of an evaluation during training; the last evaluation uses
            `final_sample`.
        overrides: settings that replace those of the table.
        on_validation: test on a part of the training split, for the choice of settings.
        resumable: whether a checkpoint is written at each evaluation. Otherwise an interrupted
            run starts from the beginning.
        save: path to save the trained model to, or None.
        by_cpu: whether seconds are CPU seconds of all cores, instead of wall time.
        methods: dict of `Method`s.
    """

    seconds: float
    every: float
    sample: int = 2000
    final_sample: int | None = 5000
    overrides: dict = dataclasses.field(default_factory=dict)
    on_validation: bool = False
    resumable: bool = True
    save: str | None = None
    by_cpu: bool = False
    methods: dict = dataclasses.field(default_factory=lambda: METHODS, repr=False)

    @property
    def title(self):
        return self.methods[self.method].title

    @property
    def settings(self):
        """The `Settings` of the method on the task."""
        return self.methods[self.method].settings_for(self.task, **self.overrides)

    def identity(self):
        return {
            "settings": dataclasses.asdict(self.settings),
            "on_validation": self.on_validation,
            "annealed_seconds": self.seconds if self.settings.anneal else None,
            "by_cpu": self.by_cpu or None,
        }

    def is_finished(self, log):
        points = log["points"]
        return bool(points) and points[-1]["seconds"] >= self.seconds

    def train(self):
        """Trains in this process, from the last checkpoint if there is one."""
        from benchmarks.harness.training_session import TrainingSession

        model = TrainingSession(self).fit()
        if self.save:
            model.save(self.save)
