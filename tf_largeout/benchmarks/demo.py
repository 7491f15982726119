"""`python -m tf_largeout.benchmarks demo`: four ways to train one model on 202,458 classes.

The classes are places, the inputs their names in any script. Each method trains the same
encoder for the same time, with the same batch, learning rate and number of negatives: with
`tf.nn.sampled_softmax_loss` and `tf.nn.nce_loss` under Keras's Adam; with stock TensorFlow
operations and a row-sparse Adam written by hand; and with `tf_largeout` as
`examples/place_names.py` does. It prints a table, draws P@1 against seconds (curves.png), saves
the last model (model.keras), loads it again and lets it answer names.
"""

import argparse
import pathlib

import keras

import tf_largeout as tflo
from tf_largeout.benchmarks import machine
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.methods import METHODS
from tf_largeout.benchmarks.plots import draw_race
from tf_largeout.benchmarks.race import YARDSTICKS, race, table
from tf_largeout.benchmarks.training_run import TrainingRun
from tf_largeout.datasets import place_names

TASK = "place_names"
STOCK = ("tf_nn_sampled_softmax", "tf_nn_nce", "stock_tuned")
OURS = "recommended"
_NAMES = ("Nieuw Amsterdam", "京都市", "Санкт-Петербург", "القاهرة", "Αθήνα", "Kiyev")
_SHARED = ("batch_size", "num_sampled", "learning_rate", "anneal", "dim")
_POINTS = 6


def main(arguments=None):
    """Runs the demo of the command line and returns its report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    settings = METHODS[OURS].settings_for(TASK)
    data = tflo.datasets.load(TASK, batch_size=settings.batch_size)
    print(f"{data.num_train:,} training examples, {data.num_classes:,} classes")
    logs = race(_runs(out, options.seconds, settings))
    report = {"machine": machine.describe(), "task": TASK, "methods": logs}
    write_json(options.json or out / "figures.json", report)
    title = f"{TASK}: {data.num_classes:,} classes, {report['machine']['cores']} cores"
    draw_race(logs, out / "curves.png", title, YARDSTICKS[TASK])
    print("", table(logs), f"\n{out}/curves.png  {out}/model.keras\n", sep="\n")
    answer(keras.saving.load_model(out / "model.keras"), data, options.names or _NAMES)
    return report


def answer(model, data, names):
    """Prints the five best places for each name, with their logits."""
    *encoder, output = model.layers
    features = keras.Sequential(encoder)(place_names.encode(names))
    scores, ids = output.top_k(features, 5)
    for name, row_scores, row_ids in zip(names, scores.numpy(), ids.numpy(), strict=True):
        print(name)
        for score, class_id in zip(row_scores, row_ids, strict=True):
            print(f"  {score:6.2f}  {data.class_text(class_id)}")


def _runs(out, seconds, settings):
    """A `TrainingRun` of each method; the stock ones share what they can with ours."""
    shared = {name: getattr(settings, name) for name in _SHARED}
    for method in (*STOCK, OURS):
        run = TrainingRun(
            task=TASK,
            method=method,
            directory=str(out),
            seconds=seconds,
            every=seconds / _POINTS,
            sample=1000,
            overrides=shared if method in STOCK else {},
            resumable=False,
            save=str(out / "model.keras") if method == OURS else None,
        )
        run.log_path.unlink(missing_ok=True)  # a demo starts anew each time
        yield run


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", help="names to answer, in any script; some by default")
    add("--seconds", type=float, default=62.0, help="training time of each method")
    add("--out", default="demo", help="directory of the model, the picture and the figures")
    add("--json", help="file for the figures (default: OUT/figures.json)")
    return parser
