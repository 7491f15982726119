"""`RivalRun`."""

import dataclasses
import gc
import tempfile

import numpy as np

from benchmarks.harness import machine, tasks
from benchmarks.harness.evaluation import query_milliseconds, rank_figures
from benchmarks.harness.files import size_mb, write_json
from benchmarks.harness.own_process import ProcessRun
from benchmarks.harness.training import Stopwatch
from benchmarks.rivals import RIVALS
from benchmarks.rivals.examples import Examples
from benchmarks.rivals.models import load_package

_CUTOFF = 5
_ASKED_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class RivalRun(ProcessRun):
    """Trains a model of another library on a task. Its log has one point, at the end.

    Attributes:
        method: key of `rivals`.
        sample: test examples to evaluate on; None for all.
        overrides: settings that replace those of the table, by the library's names.
        on_validation: test on a part of the training split, for the choice of settings.
        rivals: dict of `Rival`s.

    Raises:
        ImportError: If the library is not installed.
    """

    sample: int | None = 5000
    overrides: dict = dataclasses.field(default_factory=dict)
    on_validation: bool = False
    rivals: dict = dataclasses.field(default_factory=lambda: RIVALS, repr=False)

    def __post_init__(self):
        load_package(self.rivals[self.method].model.package)

    @property
    def title(self):
        return self.rivals[self.method].title

    @property
    def settings(self):
        """The settings of the method on the task."""
        return self.rivals[self.method].settings_for(self.task, **self.overrides)

    def identity(self):
        return {"settings": self.settings, "on_validation": self.on_validation}

    def is_finished(self, log):
        return bool(log["points"])

    def train(self):
        """Trains in this process and writes the log."""
        task = tasks.load(self.task, 512, on_validation=self.on_validation)
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            model = self.rivals[self.method].model(self.settings, folder)
            model.prepare(Examples.of_task(task))
            log = {**self.read_log(), **_trained(model), "num_examples": task.num_examples}
            log["model_mb"] = size_mb(model.save())
            log["query_ms"] = query_milliseconds(model.top_k, task.test_sample(1000)[0])
            log["points"][-1] |= _figures(model, task, self.sample)
        write_json(self.log_path, log)


def _trained(model):
    """Trains a `RivalModel`; returns its times and memory."""
    gc.collect()
    machine.reset_peak()
    resident_mb, stopwatch = machine.resident_mb(), Stopwatch()
    stopwatch.start()
    model.train()
    times = {"wall_seconds": stopwatch.wall, "cpu_seconds": stopwatch.cpu}
    peak_mb = machine.peak_mb()
    return {
        "points": [{"seconds": times["wall_seconds"], **times}],
        "peak_mb": peak_mb,
        "grown_mb": peak_mb - resident_mb,
    }


def _figures(model, task, sample):
    """Returns the precision on test examples, in per cent."""
    features, labels = task.test_sample(sample)
    firsts = range(0, len(features), _ASKED_AT_ONCE)
    best = [model.top_k(features[at : at + _ASKED_AT_ONCE], _CUTOFF) for at in firsts]
    labels = labels.reshape(len(labels), -1)
    return rank_figures(np.concatenate(best), labels, task.label_counts, task.num_examples)
