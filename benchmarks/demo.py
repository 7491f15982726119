"""`python -m benchmarks demo`: trains four models on 202,458 classes.

The classes are places, and the inputs are their names in any script. Four methods train the
same encoder, one after the other, for the same time, with the same batch size, learning rate
and number of negatives: `tf_largeout`, used as in `examples/place_names.py`,
`tf.nn.sampled_softmax_loss` and `tf.nn.nce_loss` with Keras's Adam, and stock TensorFlow
operations with a row-sparse Adam written by hand. So all figures depend on the machine.

The demo prints a table, draws P@1 against seconds (curves.png), saves the model of
`tf_largeout` (model.keras), loads it again, and predicts the places of some names.
"""

import pathlib

import keras
import numpy as np

import tf_largeout as tflo
from benchmarks.harness import machine, tasks
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_race
from benchmarks.harness.training import TrainingRun
from benchmarks.methods.method_table import METHODS
from benchmarks.methods.models import encoder_of
from benchmarks.race import table
from benchmarks.tune import positive
from tf_largeout.datasets import place_names

TASK = "place_names"
STOCK = ("tf_nn_sampled_softmax", "tf_nn_nce", "stock_tuned")
OURS = "recommended"
# Names of the test split for which the model predicts the right place with a clear margin. P@1
# is measured on all names.
NAMES = ("Berliin", "Kuala-Lumpuro", "Буенос Айрес", "تاینان", "וולונגונג", "石河子")
_SHARED = ("batch_size", "num_sampled", "learning_rate", "anneal", "dim")
# `make demo` then takes less than 10 minutes on two cores of 2.5 GHz, with the build.
_SECONDS = 40.0
_OVERHEAD = 30.0  # seconds per method without its training, on such a machine
_POINTS, _SAMPLE, _FINAL_SAMPLE = 6, 500, 3000


def main(arguments=None):
    """Runs the demo of the command line and returns its report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    print(f"Loading {TASK}; the first time, its source (35 MB) is fetched.", flush=True)
    data = tflo.datasets.load(TASK, batch_size=METHODS[OURS].settings_for(TASK).batch_size)
    _print_plan(data, options.seconds)
    logs = _train_all(out, options.seconds)
    report = {"machine": machine.describe(), "task": TASK, "methods": logs}
    write_json(options.json or out / "figures.json", report)
    title = f"{TASK}: {data.num_classes:,} classes, {report['machine']['cores']} cores"
    draw_race(logs, out / "curves.png", title)
    print(f"\n{_heading(options.seconds, report['machine'])}", table(logs), sep="\n")
    print("", *at_equal_examples(logs), f"\n{out}/curves.png  {out}/model.keras\n", sep="\n")
    answer(keras.saving.load_model(out / "model.keras"), data, options.names or NAMES)
    return report


def _print_plan(data, seconds):
    """Prints what will be done and about how long it takes."""
    titles = [METHODS[method].title for method in (*STOCK, OURS)]
    minutes = len(titles) * (seconds + _OVERHEAD) / 60
    print(
        f"{data.num_train:,} names of {data.num_classes:,} places to train on. Four methods "
        f"train the same encoder for {seconds:.0f} s each, one after the other:",
        *(f"  {number}. {title}" for number, title in enumerate(titles, 1)),
        f"With loading and tests, this takes up to {minutes:.0f} minutes.",
        sep="\n",
        flush=True,
    )


def _heading(seconds, machine):
    """Returns the lines above the table."""
    return (
        f"After {seconds:.0f} s of training each, on {machine['cores']} cores of "
        f"{machine['processor']}. A faster machine makes more steps in this time, so all "
        "figures depend on the machine:"
    )


def _train_all(out, seconds):
    """Trains each method for the same time; returns the logs, ours last."""
    logs = {}
    for number, run in enumerate(_runs(out, seconds), 1):
        print(f"\nMethod {number} of {1 + len(STOCK)}", flush=True)
        run.log_path.unlink(missing_ok=True)  # of an earlier demo
        logs[run.method] = run.in_own_process()
    return logs


def _runs(out, seconds):
    """Returns a `TrainingRun` per method. Stock ones have our settings where possible."""
    settings = METHODS[OURS].settings_for(TASK)
    shared = {name: getattr(settings, name) for name in _SHARED}
    stock = [_run(out, method, seconds, overrides=shared) for method in STOCK]
    return [*stock, _run(out, OURS, seconds, save=str(out / "model.keras"))]


def _run(out, method, seconds, **options):
    return TrainingRun(
        task=TASK,
        method=method,
        directory=str(out),
        seconds=seconds,
        every=seconds / _POINTS,
        sample=_SAMPLE,
        final_sample=_FINAL_SAMPLE,
        resumable=False,
        **options,
    )


def at_equal_examples(logs):
    """Returns lines that compare each stock method with ours after equal examples.

    P@1 of our method is interpolated linearly between two evaluations. Stock methods that
    trained on fewer examples than our method before its first evaluation are left out.
    """
    ours = logs[OURS]
    seen, p1 = zip(*((each["examples"], each["p1"]) for each in ours["points"]), strict=True)
    lines = []
    for method in STOCK:
        last = logs[method]["points"][-1]
        if last["examples"] >= seen[0]:
            lines.append(
                f"After {last['examples']:,} examples: P@1 {last['p1']:.1f} of "
                f"{logs[method]['title']}, {np.interp(last['examples'], seen, p1):.1f} of ours."
            )
    return lines


def answer(model, data, names):
    """Prints the five best places for each name, with their logits.

    The right place is marked for names of the test split, on which no method was trained.
    """
    features = encoder_of(model)(place_names.encode(names))
    scores, ids = model.layers[-1].top_k(features, 5)
    _, labels = tasks.collect(data.test)
    right = {data.test_text(row): int(label) for row, label in enumerate(labels)}
    print("The five best places for each name; * marks the right one, where it is known:")
    for name, row_scores, row_ids in zip(names, scores.numpy(), ids.numpy(), strict=True):
        print(name)
        for score, class_id in zip(row_scores, row_ids, strict=True):
            mark = "*" if right.get(name) == class_id else " "
            print(f"{mark} {score:6.2f}  {data.class_text(class_id)}")


def _parser():
    parser = new_parser("demo", __doc__, has_picture=False)
    add = parser.add_argument
    add("names", nargs="*", help="names to predict the places of, in any script")
    add("--seconds", type=positive, default=_SECONDS, help="training time of each method")
    add("--out", default="demo", help="directory of the model, the picture and the figures")
    return parser
