"""Estimates how long a method takes on this machine, from a measurement of a few seconds."""

import dataclasses
import statistics
import time

import keras

from tf_largeout.benchmarks.harness import own_process, tasks
from tf_largeout.benchmarks.harness.evaluation import evaluate
from tf_largeout.benchmarks.harness.files import silent
from tf_largeout.benchmarks.methods.method_table import METHODS

_EXECUTIONS = 6  # timed before the search for hard negatives starts, and after
_SAMPLE = 500  # test examples that are timed


@dataclasses.dataclass(frozen=True)
class Speed:
    """Seconds that a method takes on this machine.

    Attributes:
        overhead: Seconds without training: start of a process, tracing, evaluations.
        step: Mean seconds of a training step without a search and of a step with one.
    """

    overhead: float
    step: float

    def training(self, steps):
        """Returns the seconds that `steps` training steps take."""
        return steps * self.step

    def total(self, training):
        """Returns the total seconds of a method that trains for `training` seconds."""
        return self.overhead + training


def measure(task_name, method, tested):
    """Returns the `Speed` of a method, measured in a separate process.

    Args:
        task_name: Name of a task, see `tasks.load`.
        method: Key of `METHODS`.
        tested: Number of examples that all evaluations of a run test together.
    """
    begin = time.perf_counter()
    with silent():
        trained_at, step, test = own_process.call(_measure, task_name, method)
    return Speed(overhead=trained_at - begin + tested * test, step=step)


def duration(seconds):
    """Formats seconds as text, in minutes from 100 s on."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _measure(task_name, method):
    """Returns when the first execution ended, seconds per step and seconds per test example."""
    settings = METHODS[method].settings_for(task_name)
    first_search = (1 + _EXECUTIONS) * settings.steps_per_execution
    settings = dataclasses.replace(settings, search_options={"start_step": first_search})
    task = tasks.load(task_name, settings.batch_size)
    model = METHODS[method].model(task, settings)
    times = _ExecutionTimes()
    executions = 2 * (1 + _EXECUTIONS)  # the first of each half traces, or builds the index
    model.fit(
        task.train,
        steps_per_epoch=executions * settings.steps_per_execution,
        callbacks=[times],
        shuffle=False,
        verbose=0,
    )
    step = times.per_execution() / settings.steps_per_execution
    return times.ends[0], step, _seconds_per_test(model, task)


def _seconds_per_test(model, task):
    features, labels = task.test_sample(_SAMPLE)
    begin = time.perf_counter()
    evaluate(model, features, labels, task.label_counts, task.num_examples)
    return (time.perf_counter() - begin) / len(labels)


class _ExecutionTimes(keras.callbacks.Callback):
    """When each execution ended, by `time.perf_counter`, which all processes share on Linux."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())

    def per_execution(self):
        """Returns the mean of two medians: seconds before the search begins, and after."""
        seconds = [end - begin for begin, end in zip(self.ends, self.ends[1:], strict=False)]
        before, after = seconds[:_EXECUTIONS], seconds[1 + _EXECUTIONS :]
        return (statistics.median(before) + statistics.median(after)) / 2
