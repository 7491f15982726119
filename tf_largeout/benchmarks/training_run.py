"""One method trained on one task for a given time, in a process of its own."""

import dataclasses
import json
import multiprocessing
import pathlib

from tf_largeout.benchmarks.files import stderr_to
from tf_largeout.benchmarks.methods import METHODS


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """What to train and for how long.

    Attributes:
        task: key of `tasks.TASKS`.
        method: key of `METHODS`.
        directory: where `METHOD.json`, the log, and the checkpoints of the run lie.
        seconds: training time, evaluations apart.
        every: seconds of training from one evaluation to the next.
        sample: test examples of an evaluation on the way; the last one takes `final_sample`.
        overrides: settings other than the table's.
        on_validation: test on a part of the training split, for the choice of settings.
        resumable: whether a checkpoint is written at each evaluation. Without, a run that was
            cut off starts anew.
        save: path to save the trained model to, or None.
    """

    task: str
    method: str
    directory: str
    seconds: float
    every: float
    sample: int = 2000
    final_sample: int | None = 5000
    overrides: dict = dataclasses.field(default_factory=dict)
    on_validation: bool = False
    resumable: bool = True
    save: str | None = None

    @property
    def log_path(self):
        return pathlib.Path(self.directory) / f"{self.method}.json"

    @property
    def settings(self):
        return METHODS[self.method].settings_for(self.task, **self.overrides)

    def in_own_process(self):
        """Trains in a fresh process, as far as is left to train, and returns the log.

        Raises:
            RuntimeError: the process failed; the message has the end of what it said.
        """
        log = self.read_log()
        if log["points"] and log["points"][-1]["seconds"] >= self.seconds:
            return log
        if not self.resumable:
            self.log_path.unlink(missing_ok=True)
        child = multiprocessing.get_context("spawn").Process(target=self.train)
        said = self.log_path.with_suffix(".stderr")
        with stderr_to(said):
            child.start()
        child.join()
        if child.exitcode != 0:
            end = said.read_text(errors="replace")[-2000:]
            raise RuntimeError(
                f"{self.method} on {self.task} ended with code {child.exitcode}:\n{end}"
            )
        return self.read_log()

    def read_log(self):
        """The log so far, a new one if there is none.

        Raises:
            ValueError: the log there is belongs to a run with other settings.
        """
        wanted = {
            "task": self.task,
            "method": self.method,
            "settings": dataclasses.asdict(self.settings),
            "on_validation": self.on_validation,
            "annealed_seconds": self.seconds if self.settings.anneal else None,
        }
        if not self.log_path.exists():
            title = METHODS[self.method].title
            return {**wanted, "title": title, "points": [], "peak_mb": 0.0}
        log = json.loads(self.log_path.read_text())
        differing = [key for key in wanted if log.get(key) != wanted[key]]
        if differing:
            raise ValueError(
                f"{self.log_path} is the log of another run: {', '.join(differing)} differ. "
                "Move it away or give another directory."
            )
        return log

    def train(self):
        """Trains in this process, from the last checkpoint if there is one."""
        from tf_largeout.benchmarks.training_session import TrainingSession

        model = TrainingSession(self).fit()
        if self.save:
            model.save(self.save)
