"""One configuration of the `step` benchmark, measured in its own process."""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, own_process
from benchmarks.harness.step_clock import WARM_UP, StepClock
from benchmarks.harness.tasks import from_arrays
from benchmarks.methods.method_table import METHODS
from benchmarks.other_libraries import step_process

_BATCHES = 32  # distinct batches, so that a step reads rows that the previous step did not load
_KILLED = {"error": "the process was killed, most likely for want of memory"}


@dataclasses.dataclass(frozen=True)
class StepCase:
    """A configuration: a method of `METHODS` with an optimizer of `OPTIMIZERS`.

    The method can also be one of `other_libraries/`, which has its own optimizer. Features come
    from a dense layer of width `dim`, so that the step also computes the gradient of the
    features. Labels are uniform, so that a step uses as many distinct rows as possible.
    `device` is "cpu" or "gpu". The reported memory is that of the process, or of its tensors on
    the GPU. With `threads`, the libraries have that many threads, and the process as many
    cores. `python` is the Python program that runs PyTorch and JAX; None for that of this
    process. `jit_compile` lets XLA compile the step, which needs `LARGEOUT_OPS=stock`.
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
    threads: int | None = None
    python: str | None = None
    jit_compile: bool = False

    def measure(self):
        """Measures in a new process and returns the figures as a dict."""
        try:
            figures = own_process.call(self.figures_or_error)
        except RuntimeError:
            figures = _KILLED
        return {**dataclasses.asdict(self), **figures}

    def figures_or_error(self, turn=None, steps_per_turn=0):
        """Selects device and threads for this process; returns the figures, or an error."""
        try:
            machine.use(self.device, self.threads)
            return self.figures(turn, steps_per_turn)
        except Exception as error:  # a line of the report must say what happened
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}

    def figures(self, turn=None, steps_per_turn=0):
        """Measures percentiles of a step's wall and CPU time, and memory, in this process."""
        task = dense_task(self.num_classes, self.dim, self.batch_size)
        if self.method.partition("_")[0] in step_process.LIBRARIES:
            return step_process.measure(self, task, turn, steps_per_turn)
        clock = StepClock(self.max_steps, self.max_seconds, self.device, turn, steps_per_turn)
        return self._measure_fit(task, clock)

    def model(self, task):
        """Returns the compiled model."""
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
        model.jit_compile = self.jit_compile
        return model

    def _measure_fit(self, task, clock):
        model = self.model(task)
        model(tf.constant(task.test[0][:1]))
        model.optimizer.build(model.trainable_variables)
        standing = machine.resident_mb(self.device)
        model.fit(
            task.train,
            steps_per_epoch=WARM_UP + self.max_steps,
            verbose=0,
            shuffle=False,
            callbacks=[StepTimes(clock)],
        )
        return clock.figures(standing)


def measure_in_turns(cases, steps_per_turn, environments=None):
    """Returns the figures of each case, measured in turns of `steps_per_turn` steps.

    Each case has its own process. All exist at the same time, and only one runs at a time. The
    figures contain the wall and CPU time of each case, divided by that of the first case: the
    median over the turns, with 10th and 90th percentile. For `environments`, see
    `call_in_turns`.
    """
    calls = [
        functools.partial(case.figures_or_error, steps_per_turn=steps_per_turn)
        for case in cases
    ]
    found = [
        _KILLED if isinstance(figures, RuntimeError) else figures
        for figures in own_process.call_in_turns(calls, environments)
    ]
    rows = [
        {**dataclasses.asdict(case), "steps_per_turn": steps_per_turn, **figures}
        for case, figures in zip(cases, found, strict=True)
    ]
    for row in rows[1:]:
        if "error" not in row and "error" not in rows[0]:
            row |= _ratios(row, rows[0])
    return rows


def _ratios(row, first):
    ratios = {}
    for kind in ("", "cpu_"):
        turns_ms = row[f"turns_{kind}ms"], first[f"turns_{kind}ms"]
        both = [mine / other for mine, other in zip(*turns_ms, strict=False)]
        names = [f"{kind}ratio_10", f"{kind}ratio", f"{kind}ratio_90"]
        ratios |= dict(zip(names, np.percentile(both, [10, 50, 90]).tolist(), strict=True))
    return ratios


class StepTimes(keras.callbacks.Callback):
    """Measures the steps of `fit` by a `StepClock`."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_begin(self, batch, logs=None):
        self.clock.begin()

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.clock.end()


def dense_task(num_classes, dim, batch_size):
    """Returns random vectors with random labels, enough for `_BATCHES` different steps."""
    rng = np.random.default_rng(0)
    examples = _BATCHES * batch_size
    features = rng.standard_normal([examples, dim], dtype=np.float32)
    labels = rng.integers(num_classes, size=examples)
    return from_arrays(features, labels, 0, num_classes, batch_size)
