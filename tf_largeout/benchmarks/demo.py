"""`python -m tf_largeout.benchmarks demo`: trains four models on 202,458 classes.

The classes are places, and the inputs are their names in any script. `tf_largeout`, used as in
`examples/place_names.py`, trains on a fixed number of examples, so that its result is nearly
the same on every machine. Each other method then trains the same encoder for the same time,
with the same batch size, learning rate and number of negatives: `tf.nn.sampled_softmax_loss`
and `tf.nn.nce_loss` with Keras's Adam, and stock TensorFlow operations with a row-sparse Adam
written by hand.

The demo first prints what it will do and how long this takes on this machine. Then it prints a
table, draws P@1 against seconds (curves.png), saves the model of `tf_largeout` (model.keras),
loads it again, and predicts the places of some names.
"""

import math
import pathlib

import keras
import numpy as np

import tf_largeout as tflo
from tf_largeout.benchmarks.harness import demo_estimate, machine, tasks
from tf_largeout.benchmarks.harness.command_line import new_parser
from tf_largeout.benchmarks.harness.files import write_json
from tf_largeout.benchmarks.harness.plots import draw_race
from tf_largeout.benchmarks.harness.training_run import TrainingRun
from tf_largeout.benchmarks.methods.builders import encoder_of
from tf_largeout.benchmarks.methods.method_table import METHODS
from tf_largeout.benchmarks.race import table
from tf_largeout.benchmarks.tune import positive
from tf_largeout.datasets import place_names

TASK = "place_names"
STOCK = ("tf_nn_sampled_softmax", "tf_nn_nce", "stock_tuned")
OURS = "recommended"
# Names of the test split for which the model predicts the right place with a clear margin. P@1
# is measured on all names.
NAMES = ("Berliin", "Kuala-Lumpuro", "Буенос Айрес", "تاینان", "וולונגונג", "石河子")
_SHARED = ("batch_size", "num_sampled", "learning_rate", "anneal", "dim")
_POINTS, _SAMPLE, _FINAL_SAMPLE = 6, 1000, 5000


def main(arguments=None):
    """Runs the demo of the command line and returns its report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    settings = METHODS[OURS].settings_for(TASK)
    print(f"Loading {TASK}; the first time, its source (35 MB) is fetched.", flush=True)
    data = tflo.datasets.load(TASK, batch_size=settings.batch_size)
    steps = whole_executions(options.epochs * data.num_train, settings)
    logs = _train_all(out, steps, settings, _print_plan(data, steps, settings))
    report = {"machine": machine.describe(), "task": TASK, "methods": logs}
    write_json(options.json or out / "figures.json", report)
    title = f"{TASK}: {data.num_classes:,} classes, {report['machine']['cores']} cores"
    draw_race(logs, out / "curves.png", title)
    seconds = logs[OURS]["points"][-1]["seconds"]
    print(f"\nAfter {seconds:.0f} s of training each:", table(logs), sep="\n")
    print("", *at_equal_examples(logs), f"\n{out}/curves.png  {out}/model.keras\n", sep="\n")
    answer(keras.saving.load_model(out / "model.keras"), data, options.names or NAMES)
    return report


def whole_executions(examples, settings):
    """Returns the steps for at least `examples` examples, in two or more executions.

    The first execution traces the graph and is not timed.
    """
    per_execution = settings.batch_size * settings.steps_per_execution
    return max(2, math.ceil(examples / per_execution)) * settings.steps_per_execution


def _print_plan(data, steps, settings):
    """Prints what will be done and how long it takes; returns the `demo_estimate.Speed`."""
    first, *others = (METHODS[method].title for method in (OURS, *STOCK))
    print(
        f"{data.num_train:,} names of {data.num_classes:,} places to train on. Four methods "
        "train the same encoder, one after the other:",
        f"  1. {first}: {steps * settings.batch_size:,} examples",
        *(f"  {k}. {title}: the same number of seconds" for k, title in enumerate(others, 2)),
        "Measuring this machine for some seconds ...",
        sep="\n",
        flush=True,
    )
    speed = demo_estimate.measure(TASK, OURS, tested=(_POINTS - 1) * _SAMPLE + _FINAL_SAMPLE)
    seconds = speed.training(steps)
    each, total = map(demo_estimate.duration, (seconds, 4 * speed.total(seconds)))
    print(
        f"Each method will train for about {each}. All four, with loading and tests, will take "
        f"about {total}.",
        flush=True,
    )
    return speed


def _train_all(out, steps, settings, speed):
    """Trains our method, then the others for the same time; returns the logs, ours last."""
    ours = _train(1, _ours(out, steps))
    seconds = ours["points"][-1]["seconds"]
    left = demo_estimate.duration(len(STOCK) * speed.total(seconds))
    print(
        f"It trained for {seconds:.1f} s. Each other method now gets the same time. All three, "
        f"with loading and tests, will take about {left}.",
        flush=True,
    )
    stock = _stock(out, seconds, settings)
    logs = {run.method: _train(number, run) for number, run in enumerate(stock, 2)}
    return {**logs, OURS: ours}


def _train(number, run):
    """Trains a run from the start and returns its log."""
    print(f"\nMethod {number} of {1 + len(STOCK)}", flush=True)
    run.log_path.unlink(missing_ok=True)
    return run.in_own_process()


def _ours(out, steps):
    """Returns a `TrainingRun` of our method with the given number of steps."""
    model = str(out / "model.keras")
    return _run(out, OURS, None, steps / _POINTS, steps=steps, save=model)


def _stock(out, seconds, settings):
    """Returns a `TrainingRun` per stock method, with our method's settings where possible."""
    shared = {name: getattr(settings, name) for name in _SHARED}
    every = seconds / _POINTS
    return [_run(out, method, seconds, every, overrides=shared) for method in STOCK]


def _run(out, method, seconds, every, **options):
    return TrainingRun(
        task=TASK,
        method=method,
        directory=str(out),
        seconds=seconds,
        every=every,
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
    add(
        "--epochs",
        type=positive,
        default=3.0,
        help="of our method; 2, or .1 for a tenth of one",
    )
    add("--out", default="demo", help="directory of the model, the picture and the figures")
    return parser
