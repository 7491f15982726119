"""One configuration of the `step` benchmark, measured in its own process."""

import dataclasses
import time

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.benchmarks.harness import machine, own_process
from tf_largeout.benchmarks.harness.tasks import from_arrays
from tf_largeout.benchmarks.methods.method_table import METHODS

_BATCHES = 32  # distinct batches, so that a step reads rows that the previous step did not load
_WARM_UP = 5


@dataclasses.dataclass(frozen=True)
class StepCase:
    """A configuration: a method of `METHODS` with an optimizer of `OPTIMIZERS`.

    Features come from a dense layer of width `dim`, so that the step also computes the gradient
    of the features. Labels are uniform, so that a step uses as many distinct rows as possible.
    `device` is "cpu" or "gpu". Memory is that of the process, or of its tensors on the GPU.
    """

    method: str
    optimizer: str
    num_classes: int = 1_000_000
    dim: int = 128
    batch_size: int = 256
    num_sampled: int = 1024
    max_steps: int = 60
    max_seconds: float = 15.0
    device: str = "cpu"

    def measure(self):
        """Measures in a new process and returns the figures as a dict."""
        try:
            figures = own_process.call(self._figures_or_error)
        except RuntimeError:
            figures = {"error": "the process was killed, most likely for want of memory"}
        return {**dataclasses.asdict(self), **figures}

    def _figures_or_error(self):
        try:
            machine.use(self.device)
            return self.figures()
        except Exception as error:  # a line of the report must say what happened
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}

    def figures(self):
        """Median, 10th and 90th percentile of step time, and memory; in this process."""
        task = dense_task(self.num_classes, self.dim, self.batch_size)
        settings = METHODS[self.method].settings_for(
            "step",
            dim=self.dim,
            batch_size=self.batch_size,
            num_sampled=self.num_sampled,
            optimizer=self.optimizer,
            sampler="uniform",
            steps_per_execution=1,
            **METHODS[self.method].searching_at_once(),
        )
        model = METHODS[self.method].model(task, settings)
        model(tf.constant(task.test[0][:1]))
        model.optimizer.build(model.trainable_variables)
        standing = machine.resident_mb(self.device)
        times = StepTimes(self.max_steps, self.max_seconds, self.device)
        model.fit(
            task.train,
            steps_per_epoch=_WARM_UP + self.max_steps,
            verbose=0,
            shuffle=False,
            callbacks=[times],
        )
        low, median, high = np.percentile(times.milliseconds, [10, 50, 90])
        return {
            "ms": median,
            "ms_10": low,
            "ms_90": high,
            "steps": len(times.milliseconds),
            "peak_mb": machine.peak_mb(self.device),
            "weights_and_slots_mb": standing,
            "step_mb": times.peak_mb - standing,
        }


class StepTimes(keras.callbacks.Callback):
    """Wall time of each step of `fit` after the warm-up, and peak memory in that time."""

    def __init__(self, max_steps, max_seconds, device="cpu"):
        super().__init__()
        self.max_steps, self.max_seconds, self.device = max_steps, max_seconds, device
        self.milliseconds = []

    def on_train_batch_begin(self, batch, logs=None):
        if batch == _WARM_UP:
            machine.reset_peak(self.device)
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        machine.finish()
        if batch >= _WARM_UP:
            self.milliseconds.append(1e3 * (time.perf_counter() - self.start))
            enough = sum(self.milliseconds) > 1e3 * self.max_seconds
            self.model.stop_training = enough and len(self.milliseconds) >= 5

    def on_train_end(self, logs=None):
        self.peak_mb = machine.peak_mb(self.device)


def dense_task(num_classes, dim, batch_size):
    """Random vectors with random labels, enough for `_BATCHES` different steps."""
    rng = np.random.default_rng(0)
    examples = _BATCHES * batch_size
    features = rng.standard_normal([examples, dim], dtype=np.float32)
    labels = rng.integers(num_classes, size=examples)
    return from_arrays(features, labels, 0, num_classes, batch_size)
