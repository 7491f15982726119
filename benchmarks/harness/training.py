"""Training of a method on a task, with a log and checkpoints."""

import contextlib
import dataclasses
import pathlib
import sys
import time

import keras
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine, tasks
from benchmarks.harness.evaluation import (
    answer_mb,
    as_tensors,
    evaluate,
    keras_top_k,
    query_milliseconds,
)
from benchmarks.harness.files import write_json
from benchmarks.harness.own_process import ProcessRun
from benchmarks.methods.method_table import METHODS
from tf_largeout.layers import FactoredOutput


class Stopwatch:
    """Wall seconds, and CPU seconds of this process on all cores, without pauses.

    Args:
        wall, cpu: Initial values of both.
    """

    def __init__(self, wall=0.0, cpu=0.0):
        self._spent, self._start = (wall, cpu), None

    def start(self):
        """Starts it unless it is running."""
        self._start = self._start or _now()

    @contextlib.contextmanager
    def paused(self):
        """Stops both inside the `with` block."""
        self._spent, self._start = (self.wall, self.cpu), None
        yield
        self.start()

    @property
    def wall(self):
        """Elapsed wall-clock seconds."""
        return self._total(0)

    @property
    def cpu(self):
        """CPU seconds: two busy cores add two per second."""
        return self._total(1)

    def _total(self, kind):
        running = _now()[kind] - self._start[kind] if self._start else 0.0
        return self._spent[kind] + running


def _now():
    return time.perf_counter(), time.process_time()


class LearningRates:
    """The rates of a model's optimizer, and of its layers that update themselves.

    Args:
        model: A compiled model.
        share: The current share of the full rates.
    """

    def __init__(self, model, share=1.0):
        layers = [layer for layer in model.layers if isinstance(layer, FactoredOutput)]
        self._learners = [model.optimizer, *layers]
        self._full = [float(learner.learning_rate) / share for learner in self._learners]

    def set_share(self, share):
        """Sets each rate to a share above 0 of its full rate."""
        for learner, full in zip(self._learners, self._full, strict=True):
            learner.learning_rate = full * share


ENDLESS = 1_000_000_000  # steps an epoch, where the clock ends it


class TrainingClock(keras.callbacks.Callback):
    """Stops `fit` after a given time or number of steps, and evaluates at fixed points.

    Time starts after the first execution, which traces the graph, and is stopped during an
    evaluation. The time of everything else in `fit` is counted: input, callbacks and Keras
    itself.

    Args:
        seconds: total training time; ignored if there are `steps`.
        every: seconds, or steps, from one point to the next; the end is a point too.
        on_point: called with (model, seconds, steps) at each point; returns figures, including
            `p1`.
        stopwatch: a `Stopwatch` with the training time of a resumed model so far; by default a
            new one.
        by_cpu: whether to count CPU seconds, which do not depend on other programs.
        anneal: share of the training, at its end, over which the learning rate falls to zero.
        title: title of the progress bar; None shows no bar.
        steps: total number of training steps, whatever time they take; None to stop after
            `seconds`. The last execution is always complete.
    """

    def __init__(
        self,
        seconds,
        every,
        on_point,
        stopwatch=None,
        by_cpu=False,
        anneal=0.0,
        title=None,
        steps=None,
    ):
        super().__init__()
        self.total, self.by_steps = steps or seconds, steps is not None
        self.every, self.on_point = every, on_point
        self.stopwatch, self.by_cpu = stopwatch or Stopwatch(), by_cpu
        self.anneal, self.title = anneal, title
        self.is_running, self.bar = False, None

    def on_train_begin(self, logs=None):
        self.next_point = self._point_after(self._spent())
        if self.anneal:  # the rate of a resumed optimizer has already fallen
            self.rates = LearningRates(self.model, self._share_of_rate(self._spent()))
        if self.title:
            unit = "steps, {remaining} left" if self.by_steps else "s"
            self.bar = tqdm(
                total=self.total,
                desc=self.title,
                bar_format=f"{{desc}} |{{bar}}| {{n:.0f}}/{{total:.0f}} {unit}{{postfix}}",
                initial=self._spent(),
                file=sys.stdout,
            )

    def on_train_batch_end(self, batch, logs=None):
        if not self.is_running:
            self.is_running = True
            self.stopwatch.start()
            return
        now = self._spent()
        if self.anneal and now < self.total:
            self.rates.set_share(self._share_of_rate(now))
        if now >= self.next_point:
            self._look(now)
        if self.bar and (now - self.bar.n >= 0.5 or now >= self.total):
            self.bar.update(now - self.bar.n)
        if now >= self.total:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.bar:
            self.bar.close()

    def _look(self, now):
        with self.stopwatch.paused():
            seconds = self._seconds() if self.by_steps else now
            figures = self.on_point(self.model, seconds, self._steps())
            if self.bar:
                self.bar.set_postfix_str(f"P@1 {figures['p1']:.1f}", refresh=False)
        self.next_point = self._point_after(now)

    def _spent(self):
        """Returns the steps or seconds so far."""
        return min(self._steps() if self.by_steps else self._seconds(), self.total)

    def _steps(self):
        return int(self.model.optimizer.iterations)

    def _seconds(self):
        return self.stopwatch.cpu if self.by_cpu else self.stopwatch.wall

    def _point_after(self, now):
        return min((now // self.every + 1) * self.every, self.total)

    def _share_of_rate(self, now):
        return min(1.0, (1 - now / self.total) / self.anneal) if self.anneal else 1.0


class TrainingSession:
    """Trains the model of a `TrainingRun`, from its last checkpoint if there is one.

    A resumed run continues with the same weights and optimizer state, and a new permutation of
    the examples.
    """

    def __init__(self, run):
        self.run, self.settings, self.log = run, run.settings, run.read_log()
        self.method = run.methods[run.method]
        last = self.log["points"][-1] if self.log["points"] else {"steps": 0, "seconds": 0.0}
        self.stopwatch = Stopwatch(
            last.get("wall_seconds", last["seconds"]), last.get("cpu_seconds", 0.0)
        )
        self.resident_mb = machine.resident_mb()
        self.task = tasks.load(
            run.task, self.settings.batch_size, last["steps"], run.on_validation
        )
        self.checkpoints = None

    def fit(self):
        """Trains to the end of the run and returns the model."""
        clock = TrainingClock(
            self.run.seconds,
            self.run.every,
            self._on_point,
            stopwatch=self.stopwatch,
            by_cpu=self.run.by_cpu,
            anneal=self.settings.anneal,
            title=self.log["title"],
        )
        machine.reset_peak()
        model = self.method.model(self.task, self.settings)
        if self.run.resumable:
            self._restore(model)
        model.fit(
            self.task.train,
            steps_per_epoch=ENDLESS,
            verbose=0,
            shuffle=False,
            callbacks=[clock],
        )
        self._measure_answers(model)
        return model

    def _measure_answers(self, model):
        features, _ = self.task.test_sample(1000)
        trained = self.log["points"][-1]["seconds"]
        seconds = min(1.0, trained)  # a short trial also measures queries for a short time only
        self.log |= {
            "model_mb": answer_mb(model),
            "query_ms": query_milliseconds(keras_top_k(model), features, seconds),
        }
        write_json(self.run.log_path, self.log)

    def _restore(self, model):
        model(as_tensors(self.task.test_sample(2)[0]))
        model.optimizer.build(model.trainable_variables)
        tracked = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        directory = pathlib.Path(self.run.directory) / self.run.method
        self.checkpoints = tf.train.CheckpointManager(tracked, str(directory), max_to_keep=2)
        if self.log["points"]:
            tracked.restore(self.log["checkpoint"]).assert_consumed()

    def _on_point(self, model, seconds, steps):
        peak_mb = max(self.log["peak_mb"], machine.peak_mb())
        grown_mb = max(self.log.get("grown_mb", 0.0), machine.peak_mb() - self.resident_mb)
        is_last = seconds >= self.run.seconds
        size = self.run.final_sample if is_last else self.run.sample
        sample = self.task.test_sample(size)
        figures = evaluate(
            model,
            *sample,
            self.task.label_counts,
            self.task.num_examples,
            score=self.method.score,
        )
        examples = steps * self.settings.batch_size
        times = {"wall_seconds": self.stopwatch.wall, "cpu_seconds": self.stopwatch.cpu}
        self.log["points"].append(
            {"seconds": seconds, **times, "steps": steps, "examples": examples, **figures}
        )
        self.log |= {"peak_mb": peak_mb, "grown_mb": grown_mb}
        self.log["num_examples"] = self.task.num_examples
        if self.checkpoints:
            self.log["checkpoint"] = self.checkpoints.save()
        write_json(self.run.log_path, self.log)
        machine.reset_peak()
        return figures


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
        model = TrainingSession(self).fit()
        if self.save:
            model.save(self.save)
