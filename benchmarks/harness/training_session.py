"""A model in training, with its log and its checkpoints."""

import pathlib

import tensorflow as tf

from benchmarks.harness import machine, tasks
from benchmarks.harness.answers import answer_mb, keras_top_k, query_milliseconds
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import write_json
from benchmarks.harness.inputs import as_tensors
from benchmarks.harness.stopwatch import Stopwatch
from benchmarks.harness.training_clock import ENDLESS, TrainingClock


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
