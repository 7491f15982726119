"""A model in training, with its log and its checkpoints."""

import pathlib

import tensorflow as tf

from tf_largeout.benchmarks import machine, tasks
from tf_largeout.benchmarks.evaluation import evaluate
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.methods import METHODS
from tf_largeout.benchmarks.training_clock import TrainingClock

_ENDLESS = 1_000_000_000


class TrainingSession:
    """Trains the model of a `TrainingRun`, from its last checkpoint if there is one.

    A resumed run goes on with a new permutation of the examples, weights and optimizer as
    they were.
    """

    def __init__(self, run):
        self.run, self.settings, self.log = run, run.settings, run.read_log()
        steps = self.log["points"][-1]["steps"] if self.log["points"] else 0
        self.task = tasks.load(run.task, self.settings.batch_size, steps, run.on_validation)
        if run.build:
            self.model = run.build(self.task)
        else:
            self.model = METHODS[run.method].model(self.task, self.settings)
        self.model(tf.constant(self.task.test_sample(2)[0]))
        self.model.optimizer.build(self.model.trainable_variables)
        self._restore()

    def fit(self):
        """Trains for the rest of the time."""
        rate, anneal = self.settings.learning_rate, self.settings.anneal
        clock = TrainingClock(
            self.run.seconds,
            self.run.every,
            self._on_point,
            spent=self.log["points"][-1]["seconds"] if self.log["points"] else 0.0,
            anneal=(rate, anneal) if anneal else None,
            title=self.log["title"],
        )
        machine.reset_peak()
        self.model.fit(
            self.task.train,
            steps_per_epoch=_ENDLESS,
            verbose=0,
            shuffle=False,
            callbacks=[clock],
        )

    def _restore(self):
        tracked = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
        directory = pathlib.Path(self.run.directory) / self.run.method
        self.checkpoints = tf.train.CheckpointManager(tracked, str(directory), max_to_keep=2)
        if self.log["points"]:
            tracked.restore(self.log["checkpoint"]).assert_consumed()

    def _on_point(self, seconds, steps):
        peak_mb = max(self.log["peak_mb"], machine.peak_mb())
        is_last = seconds >= self.run.seconds
        size = self.run.final_sample if is_last else self.run.sample
        figures = evaluate(self.model, *self.task.test_sample(size))
        examples = steps * self.settings.batch_size
        self.log["points"].append(
            {"seconds": seconds, "steps": steps, "examples": examples, **figures}
        )
        self.log["peak_mb"] = peak_mb
        if self.run.resumable:
            self.log["checkpoint"] = self.checkpoints.save()
        write_json(self.run.log_path, self.log)
        machine.reset_peak()
        return figures
