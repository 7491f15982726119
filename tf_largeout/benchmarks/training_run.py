"""One method trained on one task for a given time, in a process of its own."""

import dataclasses
import json
import multiprocessing
import os
import pathlib

import tensorflow as tf

from tf_largeout.benchmarks import machine, tasks
from tf_largeout.benchmarks.evaluation import evaluate
from tf_largeout.benchmarks.methods import METHODS
from tf_largeout.benchmarks.training_clock import TrainingClock

_ENDLESS = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """What to train and for how long.

    Attributes:
        task: key of `tasks.TASKS`.
        method: key of `METHODS`.
        directory: where the log `METHOD.json` and the checkpoint of the run lie.
        seconds: training time, evaluations apart.
        every: seconds of training from one evaluation to the next.
        sample: test examples of an evaluation on the way; the last one takes `final_sample`.
        overrides: settings other than the table's.
        keep: whether checkpoints are written, so that the run can be resumed.
        save: path to save the trained model to, or None.
        build: function (task) -> compiled model that stands in for the table's, or None.
    """

    task: str
    method: str
    directory: str
    seconds: float
    every: float
    sample: int = 2000
    final_sample: int | None = 5000
    overrides: dict = dataclasses.field(default_factory=dict)
    keep: bool = True
    save: str | None = None
    build: object = None
    progress: bool = True

    @property
    def log_path(self):
        return pathlib.Path(self.directory) / f"{self.method}.json"

    def in_own_process(self):
        """Runs in a fresh process, waits, and returns the log; nothing to do if it is complete."""
        log = self.read_log()
        if log["points"] and log["points"][-1]["seconds"] >= self.seconds:
            return log
        child = multiprocessing.get_context("spawn").Process(target=self.train)
        child.start()
        child.join()
        if child.exitcode != 0:
            raise RuntimeError(f"{self.method} on {self.task} ended with {child.exitcode}.")
        return self.read_log()

    def read_log(self):
        """The log so far; a new one if there is none; ValueError if it is of other settings."""
        settings = self.settings()
        wanted = {"task": self.task, "method": self.method}
        wanted |= {"settings": dataclasses.asdict(settings)}
        if settings.anneal:
            wanted["annealed_seconds"] = self.seconds
        title = METHODS[self.method].title
        fresh = {**wanted, "title": title, "points": [], "peak_mb": 0.0}
        if not self.log_path.exists():
            return fresh
        log = json.loads(self.log_path.read_text())
        differing = [key for key in wanted if log.get(key) != wanted[key]]
        if differing:
            raise ValueError(
                f"{self.log_path} is the log of another run: its {', '.join(differing)} differ. "
                "Move it away or give another directory."
            )
        return log

    def settings(self):
        return METHODS[self.method].settings_for(self.task, **self.overrides)

    def train(self):
        """Trains in this process, from the last checkpoint if there is one."""
        session = _Session(self)
        session.fit()
        if self.save:
            session.model.save(self.save)


class _Session:
    """A model in training, with its log."""

    def __init__(self, run):
        self.run, self.settings = run, run.settings()
        self.log = run.read_log()
        self.task = tasks.load(run.task)
        if run.build:
            self.model = run.build(self.task)
        else:
            self.model = METHODS[run.method].model(self.task, self.settings)
        self.peak_mb = self.log["peak_mb"]
        self._build_weights()
        self._restore()

    def _build_weights(self):
        features, _ = self.task.test_sample(2)
        self.model(tf.constant(features))
        self.model.optimizer.build(self.model.trainable_variables)
        tracked = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
        directory = pathlib.Path(self.run.directory) / self.run.method
        self.checkpoints = tf.train.CheckpointManager(tracked, str(directory), max_to_keep=2)

    def _restore(self):
        if self.log["points"]:
            self.checkpoints.checkpoint.restore(self.log["checkpoint"]).assert_consumed()

    def fit(self):
        points = self.log["points"]
        steps = int(self.model.optimizer.iterations)
        clock = TrainingClock(
            self.run.seconds,
            self.run.every,
            self._on_point,
            spent=points[-1]["seconds"] if points else 0.0,
            anneal=(self.settings.learning_rate, self.settings.anneal)
            if self.settings.anneal
            else None,
            title=self.log["title"] if self.run.progress else None,
        )
        batches = self.task.train_batches(self.settings.batch_size, first_step=steps)
        machine.reset_peak()
        self.model.fit(batches, steps_per_epoch=_ENDLESS, verbose=0, shuffle=False, callbacks=[clock])

    def _on_point(self, seconds, steps):
        self.peak_mb = max(self.peak_mb, machine.peak_mb())
        last = seconds >= self.run.seconds
        sample = self.run.final_sample if last else self.run.sample
        figures = evaluate(self.model, *self.task.test_sample(sample))
        examples = steps * self.settings.batch_size
        point = {"seconds": seconds, "steps": steps, "examples": examples, **figures}
        self.log["points"].append(point)
        self.log["peak_mb"] = self.peak_mb
        if self.run.keep:
            self.log["checkpoint"] = self.checkpoints.save()
        write_json(self.run.log_path, self.log)
        machine.reset_peak()


def write_json(path, content):
    """Writes JSON so that a reader sees the old file or the new one, never a half."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(json.dumps(content, indent=1))
    os.replace(temporary, path)
