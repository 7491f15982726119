"""`python -m lab.defaults.optimizers`: P@1 of each optimizer with its defaults.

Trains one model per optimizer, learning rate and task for the same number of steps, with
everything else at its default: Keras's Adam, Adagrad and SGD, the row-sparse optimizers, and
some of these again with the rules for class rows from their docstrings. Prints P@1 as a table.
Each run has its own process. Its figures are kept in `--out`, so an interrupted table can be
continued.
"""

import argparse
import json
import pathlib

import keras

from lab.shared.directions import add_task
from lab.shared.figures import mean_and_deviation
from tf_largeout import layers, losses, optimizers, samplers
from tf_largeout.benchmarks.harness import machine, own_process, tasks
from tf_largeout.benchmarks.harness.evaluation import evaluate
from tf_largeout.benchmarks.harness.files import write_json

add_task()

_STEPS_PER_EXECUTION = 16


def _class_rows_by_sgd(rate, batch_size):
    rows = optimizers.LazySGD(batch_size / 5)
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(optimizers.LazyAdam(rate), {".*large_output.*": rows})
    )


# (learning rate, batch size) -> optimizer
OPTIMIZERS = {
    "keras Adam": lambda rate, _: keras.optimizers.Adam(rate),
    "LazyAdam": lambda rate, _: optimizers.LazyAdam(rate),
    "keras Adagrad": lambda rate, _: keras.optimizers.Adagrad(rate),
    "LazyAdagrad": lambda rate, _: optimizers.LazyAdagrad(rate),
    "RowwiseAdagrad": lambda rate, _: optimizers.RowwiseAdagrad(rate),
    "keras SGD": lambda rate, _: keras.optimizers.SGD(rate),
    "LazySGD": lambda rate, _: optimizers.LazySGD(rate),
    "LazyAdagrad, by its rule": lambda rate, _: optimizers.LazyAdagrad(
        30 * rate, initial_accumulator_value=0.0
    ),
    "RowwiseAdagrad, by its rule": lambda rate, _: optimizers.RowwiseAdagrad(30 * rate),
    "LazySGD on class rows, by its rule": _class_rows_by_sgd,
}

# task -> batch size, width, number of negatives, sampler, steps; narrow for Keras's dense Adam
SHAPES = {
    "directions": (256, 64, 64, samplers.UniformSampler, 470),
    "place_names": (512, 32, 1024, samplers.UniformSampler, 1536),
    "linux_callees": (512, 32, 1024, samplers.LogUniformSampler, 1024),
}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    report = {"machine": machine.describe(), "runs": []}
    for task in options.tasks:
        for rate in options.rates:
            for optimizer in options.optimizers:
                for seed in options.seeds:
                    run = {"task": task, "rate": rate, "optimizer": optimizer, "seed": seed}
                    report["runs"].append(_kept(run, options.steps, out))
        print(table(report["runs"], task), flush=True)
    write_json(options.json or out / "defaults.json", report)
    return report


def table(runs, task):
    """P@1 of the runs on a task as Markdown: one line per optimizer, one column per rate.

    With several seeds, mean ± standard deviation.
    """
    runs = [run for run in runs if run["task"] == task]
    rates = sorted({run["rate"] for run in runs})
    names = list(dict.fromkeys(run["optimizer"] for run in runs))
    steps = runs[0]["steps"]
    lines = [
        f"| `{task}`, {steps:,} steps | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---" * (len(rates) + 1) + "|",
    ]
    for name in names:
        of_name = [run for run in runs if run["optimizer"] == name]
        cells = (
            mean_and_deviation([run["p1"] for run in of_name if run["rate"] == rate])
            for rate in rates
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def train(task, optimizer, rate, seed=0, steps=None):
    """Trains one model and returns `steps` and the figures of `evaluate`.

    Args:
        task: key of `SHAPES`.
        optimizer: key of `OPTIMIZERS`.
        rate: learning rate.
        seed: seed of weights and draws.
        steps: number of training steps; that of `SHAPES` by default.
    """
    batch_size, dim, num_sampled, sampler, usual_steps = SHAPES[task]
    steps = steps or usual_steps
    keras.utils.set_random_seed(seed)
    problem = tasks.load(task, batch_size)
    head = layers.LargeOutput(problem.num_classes, sampler=sampler(num_sampled, seed=seed))
    model = keras.Sequential([problem.input(), problem.encoder(dim), head])
    model.compile(
        optimizer=OPTIMIZERS[optimizer](rate, batch_size),
        loss=losses.SampledSoftmaxLoss(),
        steps_per_execution=min(_STEPS_PER_EXECUTION, steps),
    )
    model.fit(problem.train, steps_per_epoch=steps, verbose=0)
    return {"steps": steps, **evaluate(model, *problem.test_sample(5000))}


def _kept(run, steps, out):
    name = "-".join(str(value) for value in run.values()).replace("/", "_").replace(" ", "_")
    path = out / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    arguments = (run["task"], run["optimizer"], run["rate"], run["seed"], steps)
    run |= own_process.call(train, *arguments)
    write_json(path, run)
    print(f"{name}: P@1 {run['p1']:.1f}", flush=True)
    return run


def _parser():
    parser = argparse.ArgumentParser(
        "python -m lab.defaults.optimizers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=SHAPES, default=list(SHAPES))
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--rates", nargs="+", type=float, default=[1e-3, 3e-3, 1e-2])
    add("--steps", type=int, help="training steps of each run (default: each task's own)")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--out", default="benchmark-results/defaults", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser


if __name__ == "__main__":
    main()
