"""`python -m tf_largeout.benchmarks epochs`: precision after as many epochs, method by method.

Trains each method on one task once for each seed, for the same number of epochs, and tests it
at the end, exactly: what `race` compares at equal time. All learning rates fall to zero in a
line. Each run has a process of its own, and its figures are kept in `--out`: a table that was
cut off goes on from there.
"""

import argparse
import dataclasses
import json
import multiprocessing
import pathlib
import time

import keras

from tf_largeout.benchmarks import machine, tasks
from tf_largeout.benchmarks.evaluation import evaluate
from tf_largeout.benchmarks.files import mean_and_deviation, write_json
from tf_largeout.benchmarks.learning_rates import FallingRates
from tf_largeout.benchmarks.methods import METHODS
from tf_largeout.benchmarks.race import setting_argument
from tf_largeout.benchmarks.tasks import TASKS

_FIGURES = ("p1", "p3", "p5", "psp1", "loss")


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out or f"benchmark-results/epochs-{options.task}")
    report = {"machine": machine.describe(), "task": options.task, "runs": []}
    for seed in options.seeds:
        for method in options.methods:
            report["runs"].append(_kept(method, seed, options, out))
            write_json(options.json or out / "epochs.json", report)
    print(table(report["runs"]), flush=True)
    return report


def train(task_name, method, epochs, seed, overrides, sample, on_validation):
    """Trains one model and returns its figures.

    Args:
        task_name: key of `TASKS`.
        method: key of `METHODS`.
        epochs: of training; a part of one is a number of steps.
        seed: of weights, draws and order.
        overrides: settings other than the method's own.
        sample: examples to test on; None for all.
        on_validation: test on examples cut from the training split.
    """
    settings = METHODS[method].settings_for(task_name, **overrides)
    keras.utils.set_random_seed(seed)
    task = tasks.load(task_name, settings.batch_size, seed, on_validation)
    steps = max(1, round(epochs * task.num_examples / settings.batch_size))
    calls = min(settings.steps_per_execution, steps)
    settings = dataclasses.replace(settings, steps_per_execution=calls)
    model = METHODS[method].model(task, settings)
    started = time.perf_counter()
    model.fit(
        task.train,
        steps_per_epoch=steps,
        callbacks=[FallingRates(steps)],
        shuffle=False,
        verbose=0,
    )
    seconds = time.perf_counter() - started
    figures = evaluate(
        model,
        *task.test_sample(sample),
        task.label_counts,
        task.num_examples,
        score=METHODS[method].score,
    )
    found = {"steps": steps, "seconds": seconds} | {name: figures[name] for name in _FIGURES}
    return {"method": method, "title": METHODS[method].title, "seed": seed, **found}


def table(runs):
    """The runs as Markdown, a line per method: mean ± standard deviation of the seeds."""
    lines = [
        "| method | steps | seconds | P@1 | P@5 | exact loss |",
        "|---|---|---|---|---|---|",
    ]
    for title in dict.fromkeys(run["title"] for run in runs):
        own = [run for run in runs if run["title"] == title]
        cells = [f"{own[0]['steps']:,}", mean_and_deviation([it["seconds"] for it in own], 0)]
        cells += [mean_and_deviation([it[name] for it in own]) for name in ("p1", "p5")]
        cells += [mean_and_deviation([it["loss"] for it in own], 2)]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _kept(method, seed, options, out):
    overrides = dict(options.set)
    said = [f"{name}={value}" for name, value in overrides.items()]
    words = [method, options.epochs, seed, *said, *["validation"] * options.validation]
    path = out / f"{'-'.join(str(word) for word in words).replace('/', '_')}.json"
    if path.exists():
        return json.loads(path.read_text())
    arguments = (options.task, method, options.epochs, seed, overrides, options.sample)
    with multiprocessing.get_context("spawn").Pool(1) as process:
        run = process.apply(train, [*arguments, options.validation])
    run |= {"epochs": options.epochs, "settings": overrides, "validation": options.validation}
    write_json(path, run)
    print(f"{path.stem}: P@1 {run['p1']:.1f}, {run['seconds']:.0f} s", flush=True)
    return run


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks epochs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--task", choices=TASKS, default="linux_callees")
    add("--methods", nargs="+", choices=METHODS, required=True)
    add("--epochs", type=float, default=1.0, help="2, or .1 for a tenth of one")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--sample", type=int, default=5000, help="examples to test on")
    add("--set", type=setting_argument, action="append", default=[], metavar="NAME=VALUE")
    add("--validation", action="store_true", help="test on a part of the training split")
    add("--out", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser
