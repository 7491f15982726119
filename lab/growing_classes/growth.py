"""`python -m lab.growing_classes.growth`: P@1 of a model to which classes are added.

One model trains on the examples of some classes, selected at random. `resize_classes` adds the
others, and the model goes on with the examples of all. It is compared with a model that has all
classes from the start, after the same number of steps, and with a new model that starts when
the classes are added. P@1 is exact, over all classes, on the test split: for all examples, for
those of the first classes and for those of the added classes. In all three models, the learning
rate is constant until classes are added and then falls to zero.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness import machine, tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser
from lab.shared.methods import METHODS
from lab.shared.plots import draw_growth


def main(arguments=None):
    """Trains as the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    if not 1 <= options.points <= min(options.steps, options.added_steps):
        raise ValueError("--points must be from 1 to the steps before and after.")
    method = METHODS[options.method]
    settings = method.settings_for(options.task)
    task = shuffled_classes(tasks.load(options.task, settings.batch_size), options.seed)
    growth = Growth(task, method, settings, options)
    runs = [growth.from_the_start(), growth.grown(), growth.new_model()]
    report = {
        "machine": machine.describe(),
        "task": options.task,
        "method": method.title,
        "settings": dataclasses.asdict(settings),
        "num_classes": task.num_classes,
        "first_classes": options.first_classes,
        "steps": options.steps,
        "added_steps": options.added_steps,
        "runs": runs,
    }
    if options.json:
        write_json(options.json, report)
    draw_growth(report, options.png)
    print(table(runs), f"\nThe picture is {options.png}.", sep="\n")
    return report


class Growth:
    """The three runs.

    Args:
        task: A `Task` of one label per example. Its last classes are added later.
        method: A `Method`.
        settings: Its `Settings`.
        options: Options of the command line.
    """

    def __init__(self, task, method, settings, options):
        self.task, self.method, self.settings, self.options = task, method, settings, options
        self.first = first_classes(task, options.first_classes, settings.batch_size)

    def from_the_start(self):
        """Trains on all classes from the start, in as many steps as the grown model."""
        model, points = self.method.model(self.task, self.settings), []
        self._train(model, self.task, points)
        self._train(model, self.task, points, added=True)
        return {"title": "all classes from the start", "points": points}

    def grown(self):
        """Trains on some classes first, then on all."""
        model, points = self.method.model(self.first, self.settings), []
        self._train(model, self.first, points)
        model = tflo.resize_classes(model, self.task.num_classes)
        sampler = model.layers[-1].sampler
        sampler = getattr(sampler, "tail", None) or sampler
        if hasattr(sampler, "adapt"):
            sampler.adapt(np.repeat(np.arange(self.task.num_classes), self.task.label_counts))
        self._train(model, self.task, points, added=True)
        title = f"grown from {self.first.num_classes:,} to {self.task.num_classes:,}"
        return {"title": title, "points": points}

    def new_model(self):
        """Trains a new model from the time when classes are added."""
        model, points = self.method.model(self.task, self.settings), []
        self._train(model, self.task, points, added=True)
        return {"title": "new model when classes are added", "points": points}

    def _train(self, model, task, points, added=False):
        epochs = self.options.points
        before, after = self.options.steps // epochs, self.options.added_steps // epochs
        per_epoch, done = (after, before * epochs) if added else (before, 0)
        look = _Look(self, points, done, per_epoch * epochs, falls=added)
        model.fit(
            task.train,
            steps_per_epoch=per_epoch,
            epochs=epochs,
            verbose=0,
            shuffle=False,
            callbacks=[look],
        )

    def figures(self, model):
        """Returns P@1 in per cent of all examples, of the first classes, and of the others."""
        features, labels = self.task.test_sample(self.options.sample)
        is_first = labels < self.first.num_classes
        of_first = evaluate(model, features[is_first], labels[is_first])["p1"]
        of_new = 0.0
        if model.layers[-1].num_classes == self.task.num_classes and not is_first.all():
            of_new = evaluate(model, features[~is_first], labels[~is_first])["p1"]
        share = float(np.mean(is_first))
        return {
            "p1": share * of_first + (1 - share) * of_new,
            "p1_first": of_first,
            "p1_new": of_new,
        }


class _Look(keras.callbacks.Callback):
    """Evaluates after each epoch, and lowers the learning rate to zero if requested."""

    def __init__(self, growth, points, steps_before, steps, falls):
        super().__init__()
        self.growth, self.points, self.falls = growth, points, falls
        self.steps_before, self.steps, self.done = steps_before, steps, 0
        self.rate = growth.settings.learning_rate

    def on_train_batch_begin(self, batch, logs=None):
        if self.falls:
            share = max(0.0, 1 - (self.done + batch) / self.steps)
            self.model.optimizer.learning_rate = self.rate * share

    def on_epoch_end(self, epoch, logs=None):
        self.done += self.params["steps"]
        figures = self.growth.figures(self.model)
        self.points.append({"steps": self.steps_before + self.done, **figures})
        print(f"step {self.points[-1]['steps']:,}: P@1 {figures['p1']:.1f}", flush=True)


def shuffled_classes(task, seed):
    """Returns the task with its classes in random order, so that the last classes are typical.

    Raises:
        ValueError: If its examples have several labels.
    """
    features, labels = task.test
    if labels.ndim > 1:
        raise ValueError("`growth` takes a task of one label per example, as place_names is.")
    new_ids = np.random.default_rng(seed).permutation(task.num_classes)
    table = tf.constant(new_ids, tf.int64)
    counts = np.empty_like(task.label_counts)
    counts[new_ids] = task.label_counts
    train = task.train.map(lambda x, y: (x, tf.gather(table, y)), tf.data.AUTOTUNE)
    return dataclasses.replace(
        task, train=train, test=(features, new_ids[labels]), label_counts=counts
    )


def first_classes(task, num_classes, batch_size):
    """Returns the task of the first classes alone, with their examples.

    Raises:
        ValueError: If `num_classes` is not below that of the task.
    """
    if not 0 < num_classes < task.num_classes:
        raise ValueError(
            f"--first-classes must be from 1 to {task.num_classes - 1}. Received: "
            f"{num_classes}."
        )

    def only_first(features, labels):
        is_first = labels < num_classes
        return tf.boolean_mask(features, is_first), tf.boolean_mask(labels, is_first)

    counts = task.label_counts[:num_classes]
    return dataclasses.replace(
        task,
        num_classes=num_classes,
        train=task.train.map(only_first, tf.data.AUTOTUNE).rebatch(batch_size).prefetch(4),
        label_counts=counts,
        num_examples=int(counts.sum()),
    )


def table(runs):
    """Formats the last point of each run as lines of text."""
    width = max(len(run["title"]) for run in runs)
    lines = [f"{'':{width}}    steps    P@1  first classes  new classes"]
    for run in runs:
        last = run["points"][-1]
        lines.append(
            f"{run['title']:{width}} {last['steps']:8,} {last['p1']:6.1f} "
            f"{last['p1_first']:14.1f} {last['p1_new']:12.1f}"
        )
    return "\n".join(lines)


def _parser():
    parser = new_parser("growing_classes.growth", __doc__)
    add = parser.add_argument
    add("--task", choices=tasks.TASKS, default="place_names")
    add("--method", choices=METHODS, default="recommended")
    add("--first-classes", type=int, default=180_000, help="classes before the others come")
    add("--steps", type=int, default=8_000, help="steps before")
    add("--added-steps", type=int, default=4_000, help="steps after")
    add("--points", type=int, default=8, help="evaluations before, and after")
    add("--sample", type=int, default=5_000, help="test examples of an evaluation")
    add("--seed", type=int, default=0, help="of the classes that come first")
    add("--json", help="file for the figures")
    add("--png", default="benchmark-results/growth.png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
