"""`JoinedRun`."""

import dataclasses
import gc

import keras

from benchmarks.harness import machine, tasks
from benchmarks.harness.evaluation import answer_mb, evaluate, keras_top_k, query_milliseconds
from benchmarks.harness.files import write_json
from benchmarks.harness.own_process import ProcessRun
from benchmarks.harness.training import ENDLESS, Stopwatch, TrainingClock
from lab.shared.methods import METHODS
from tf_largeout import join_models


@dataclasses.dataclass(frozen=True)
class JoinedRun(ProcessRun):
    """Models that are trained in sequence and joined; the log has one point.

    `method` is a key of `METHODS` and the number of models, such as `several_labels x3`.

    Attributes:
        seconds: Seconds of computation for each model; its rate falls to zero in this time.
        sample: Number of test examples; None for all.
        on_validation: Whether to test on a part of the training split, to choose settings.
    """

    seconds: float
    sample: int | None = 5000
    on_validation: bool = False

    @property
    def of(self):
        """The key of `METHODS` and the number of models."""
        name, number = self.method.split(" x")
        return name, int(number)

    @property
    def title(self):
        name, number = self.of
        return f"{METHODS[name].title}, {number} models joined"

    @property
    def settings(self):
        """The `Settings` of each model on the task."""
        return METHODS[self.of[0]].settings_for(self.task)

    def identity(self):
        settings = dataclasses.asdict(self.settings)
        return {
            "settings": settings,
            "on_validation": self.on_validation,
            "seconds_each": self.seconds,
        }

    def is_finished(self, log):
        return bool(log["points"])

    def train(self):
        """Trains in this process and writes the log."""
        gc.collect()
        machine.reset_peak()
        resident_mb = machine.resident_mb()
        models, wall, cpu = zip(*map(self._trained, range(self.of[1])), strict=True)
        peak_mb = machine.peak_mb()
        task, joined = self._load(0), join_models(models)
        known = *task.test_sample(self.sample), task.label_counts, task.num_examples
        times = {"seconds": sum(cpu), "wall_seconds": sum(wall), "cpu_seconds": sum(cpu)}
        costs = {
            "peak_mb": peak_mb,
            "grown_mb": peak_mb - resident_mb,
            "model_mb": answer_mb(joined),
            "query_ms": query_milliseconds(keras_top_k(joined), task.test_sample(1000)[0]),
            "num_examples": task.num_examples,
        }
        points = [{**times, **evaluate(joined, *known)}]
        write_json(self.log_path, {**self.read_log(), **costs, "points": points})

    def _trained(self, seed):
        """Returns a trained model, its seconds and its CPU seconds."""
        keras.utils.set_random_seed(seed)
        task, spent = self._load(seed), Stopwatch()
        model = METHODS[self.of[0]].model(task, self.settings)
        clock = TrainingClock(
            self.seconds,
            self.seconds,
            lambda *_: {},
            stopwatch=spent,
            by_cpu=True,
            anneal=self.settings.anneal,
        )
        model.fit(
            task.train, steps_per_epoch=ENDLESS, verbose=0, shuffle=False, callbacks=[clock]
        )
        return model, spent.wall, spent.cpu

    def _load(self, seed):
        return tasks.load(self.task, self.settings.batch_size, seed, self.on_validation)
