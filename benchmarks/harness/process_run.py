"""`ProcessRun`."""

import abc
import dataclasses
import json
import multiprocessing
import pathlib

from benchmarks.harness.files import stderr_to


@dataclasses.dataclass(frozen=True)
class ProcessRun(abc.ABC):
    """A method that is trained on a task in its own process, with a log.

    Attributes:
        task: Name of a task, see `tasks.load`.
        method: Name of the method in logs.
        directory: Folder of `METHOD.json`, the log, and of other files of the run.
    """

    task: str
    method: str
    directory: str

    @property
    @abc.abstractmethod
    def title(self):
        """Name in tables and pictures."""

    @abc.abstractmethod
    def identity(self):
        """Returns the settings that identify the log of this run, as a dict."""

    @abc.abstractmethod
    def is_finished(self, log):
        """Returns whether nothing is left to train."""

    @abc.abstractmethod
    def train(self):
        """Trains in this process and writes the log."""

    @property
    def resumable(self):
        """Whether an incomplete log is continued; otherwise it is discarded."""
        return False

    @property
    def log_path(self):
        """Path of the log."""
        return pathlib.Path(self.directory) / f"{self.method}.json"

    def in_own_process(self):
        """Trains in a new process as far as needed and returns the log.

        Raises:
            RuntimeError: If the process failed; the message contains the end of its output.
        """
        log = self.read_log()
        if self.is_finished(log):
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
        """Returns the log so far, or a new one.

        Raises:
            ValueError: If the log belongs to a run with other settings.
        """
        wanted = {"task": self.task, "method": self.method, **self.identity()}
        if not self.log_path.exists():
            return {**wanted, "title": self.title, "points": [], "peak_mb": 0.0}
        log = json.loads(self.log_path.read_text())
        differing = [key for key in wanted if log.get(key) != wanted[key]]
        if differing:
            raise ValueError(
                f"{self.log_path} is the log of another run: {', '.join(differing)} differ. "
                "Move it away or give another directory."
            )
        return log
