"""What the examples share: three ways to train one model, a table, a picture, some answers."""

import argparse
import dataclasses
import os
import pathlib
import sys

import keras
import tensorflow as tf

from tf_largeout import datasets
from tf_largeout.benchmarks import machine
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.plots import draw_race
from tf_largeout.benchmarks.race import YARDSTICKS, race, table
from tf_largeout.benchmarks.training_run import TrainingRun

_STOCK = ("tf_nn_sampled_softmax", "tf_nn_nce")
_POINTS = 6


@dataclasses.dataclass(frozen=True)
class Demo:
    """An example: the user's own training beside the two that stock TensorFlow offers.

    Attributes:
        doc: the example's docstring, for `--help`.
        dataset: name for `tf_largeout.datasets.load`, and key of the benchmark's tasks.
        train: (dataset, callbacks) -> trained model.
        settings: what all three methods share: batch size, learning rate and so on.
        questions: texts answered when the user gives none.
        prompt: what the user is asked for.
        seconds: training time of each method.
        featurize: (dataset, text) -> features [1, max_features]; None answers the first test
            example that has all words of the text.
        own_settings: what `train` takes other than those and the table's, for its log.
    """

    doc: str
    dataset: str
    train: object
    settings: dict
    questions: tuple
    prompt: str
    seconds: float
    featurize: object = None
    own_settings: dict = dataclasses.field(default_factory=dict)

    def main(self, arguments=None):
        """Runs the example's command line and returns its figures."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        options = self._parser().parse_args(arguments)
        out = pathlib.Path(options.out)
        data = datasets.load(self.dataset, batch_size=self.settings["batch_size"])
        print(f"{data.num_train:,} training examples, {data.num_classes:,} classes")
        runs = list(self._runs(out, options.seconds))
        for run in runs:  # an example starts anew each time
            run.log_path.unlink(missing_ok=True)
        logs = race(runs)
        report = {"machine": machine.describe(), "task": self.dataset, "methods": logs}
        write_json(options.json or out / "figures.json", report)
        title = (
            f"{self.dataset}: {data.num_classes:,} classes, {report['machine']['cores']} cores"
        )
        draw_race(logs, out / "curves.png", title, YARDSTICKS.get(self.dataset))
        print("", table(logs), f"\n{out}/curves.png  {out}/model.keras\n", sep="\n")
        self._answer(keras.saving.load_model(out / "model.keras"), data, options.question)
        return report

    def _runs(self, out, seconds):
        shape = {"seconds": seconds, "every": seconds / _POINTS, "sample": 1000}
        shape |= {"directory": str(out), "overrides": self.settings, "resumable": False}
        for method in _STOCK:
            yield TrainingRun(self.dataset, method, **shape)
        own = shape | {"overrides": self.settings | self.own_settings}
        save = str(out / "model.keras")
        yield TrainingRun(self.dataset, "ours", **own, train_function=self.train, save=save)

    def _answer(self, model, data, questions):
        for question in questions or self.questions:
            self._print_answer(model, data, question)
        while not questions and sys.stdin.isatty():
            question = input(f"{self.prompt} (Enter to end): ").strip()
            if not question:
                return
            self._print_answer(model, data, question)

    def _print_answer(self, model, data, question):
        if self.featurize:
            features = self.featurize(data, question)
        else:
            features, question = find_test_example(data, question)
            if features is None:
                print(f"{question}: no example of the test split has all these words.")
                return
        logits = model(features, training=False)
        best, ids = tf.math.top_k(tf.nn.softmax(logits)[0], k=5)
        print(question)
        for probability, class_id in zip(best.numpy(), ids.numpy(), strict=True):
            print(f"  {probability:6.1%}  {data.class_text(class_id)}")

    def _parser(self):
        parser = argparse.ArgumentParser(
            description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = parser.add_argument
        add("question", nargs="*", help=f"{self.prompt}; some are answered by default")
        add("--seconds", type=float, default=self.seconds, help="training time of each method")
        add("--out", default="demo", help="directory of the model, the picture and the figures")
        add("--json", help="file for the figures")
        return parser


def find_test_example(data, words):
    """(features [1, max_features], text) of the first test example with all of the words.

    If there is none: (None, words).
    """
    for index in range(data.num_test):
        text = data.test_text(index)
        if all(word.lower() in text.lower() for word in words.split()):
            ((features, _),) = data.test.unbatch().skip(index).take(1).batch(1)
            return features, text
    return None, words
