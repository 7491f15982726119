"""`python -m lab.shared.epochs`: precision of each method after the same number of epochs.

Trains each method on one task, once per seed, for the same number of epochs, and tests it
exactly at the end. `race` compares at equal time instead. All learning rates fall linearly to
zero. Each run has its own process. Its figures are kept in `--out`, so an interrupted table can
be continued. With `--joined 3`, a run trains three models in sequence and tests `join_models`
of them.
"""

import dataclasses
import itertools
import time

import keras

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import markdown
from benchmarks.harness.tasks import task_argument
from benchmarks.race import setting_argument
from lab.shared.command_line import new_parser
from lab.shared.directions import add_task
from lab.shared.falling_rates import FallingRates
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from lab.shared.methods import METHODS
from tf_largeout import join_models

add_task()

_FIGURES = ("p1", "p3", "p5", "psp1", "psp3", "psp5", "loss")


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = options.out or f"benchmark-results/epochs-{options.task}"
    file = options.json or f"{out}/epochs.json"
    kept = KeptRuns(out, file, _line, task=options.task)
    overrides = dict(options.set)
    run = {"epochs": options.epochs, "settings": overrides, "validation": options.validation}
    more = [f"{name}={value}" for name, value in overrides.items()]
    more += ["validation"] * options.validation
    more += [f"joined={options.joined}"] * (options.joined > 1)
    for seed, method in itertools.product(options.seeds, options.methods):
        given = options.task, method, options.epochs, seed, overrides, options.sample
        given += options.validation, options.joined
        kept.add([method, options.epochs, seed, *more], run, train, *given)
    print(table(kept.runs), flush=True)
    return kept.report


def train(task_name, method, epochs, seed, overrides, sample, on_validation, num_models=1):
    """Trains models of one method and returns their figures as one.

    Args:
        task_name: name of a task, see `tasks.load`.
        method: key of `METHODS`.
        epochs: number of epochs per model; may be a fraction.
        seed: seed of weights, draws and order; each model derives its own seed from it.
        overrides: settings that replace those of the method.
        sample: examples to test on; None for all.
        on_validation: test on examples cut from the training split.
        num_models: number of models that are trained and joined.
    """
    settings = METHODS[method].settings_for(task_name, **overrides)
    models, found = [], {"steps": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    for own_seed in range(seed * num_models, (seed + 1) * num_models):
        keras.utils.set_random_seed(own_seed)
        task = tasks.load(task_name, settings.batch_size, own_seed, on_validation)
        model, costs = _trained(task, method, settings, epochs)
        models.append(model)
        found = {name: found[name] + costs[name] for name in found}
    figures = evaluate(
        models[0] if num_models == 1 else join_models(models),
        *task.test_sample(sample),
        task.label_counts,
        task.num_examples,
        score=METHODS[method].score,
    )
    found |= {name: figures[name] for name in _FIGURES}
    return {"method": method, "title": METHODS[method].title, "seed": seed, **found}


def _trained(task, method, settings, epochs):
    """Returns a trained model, its `steps`, `seconds` and `cpu_seconds` (of all threads)."""
    steps = max(1, round(epochs * task.num_examples / settings.batch_size))
    calls = min(settings.steps_per_execution, steps)
    settings = dataclasses.replace(settings, steps_per_execution=calls)
    model = METHODS[method].model(task, settings)
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(
        task.train,
        steps_per_epoch=steps,
        callbacks=[FallingRates(steps)],
        shuffle=False,
        verbose=0,
    )
    return model, {
        "steps": steps,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
    }


def table(runs):
    """Returns the runs as Markdown, one line per method: mean ± deviation over the seeds."""
    head = ["method", "steps", "seconds", "CPU seconds", "P@1", "P@3", "P@5", "PSP@1"]
    head += ["PSP@3", "PSP@5", "exact loss"]
    rows = []
    for title in dict.fromkeys(run["title"] for run in runs):
        own = [run for run in runs if run["title"] == title]
        cells = [title, f"{own[0]['steps']:,}"]
        cells += [_over_runs(own, name, 0) for name in ("seconds", "cpu_seconds")]
        cells += [_over_runs(own, name, 1) for name in _FIGURES[:-1]]
        rows.append([*cells, _over_runs(own, "loss", 2)])
    return markdown(head, rows)


def _over_runs(runs, name, digits):
    return mean_and_deviation([run[name] for run in runs if name in run], digits)


def _line(run):
    return f"P@1 {run['p1']:.1f}, {run['seconds']:.0f} s"


def _parser():
    parser = new_parser("shared.epochs", __doc__)
    add = parser.add_argument
    add("--task", type=task_argument, default="linux_callees")
    add("--methods", nargs="+", choices=METHODS, required=True)
    add("--epochs", type=float, default=1.0, help="2, or .1 for a tenth of one")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--joined", type=int, default=1, help="models of a run, which are tested as one")
    add("--sample", type=int, default=5000, help="examples to test on")
    add("--set", type=setting_argument, action="append", default=[], metavar="NAME=VALUE")
    add("--validation", action="store_true", help="test on a part of the training split")
    add("--out", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser


if __name__ == "__main__":
    main()
