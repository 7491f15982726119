"""`python -m lab.defaults.row_dtypes`: P@1 with class rows in float32 and in bfloat16.

Trains one model per task, optimizer, kind of rows and seed, with a learning rate that falls to
zero, and everything else equal. The kinds are float32, `embeddings_dtype="bfloat16"`, which
rounds at random, and bfloat16 rows that are rounded to the nearest number after each step.
Prints P@1 as a table. Each run has its own process. Its figures are kept in `--out`, so an
interrupted table can be continued.
"""

import argparse
import json
import pathlib

import keras
import tensorflow as tf

from lab.defaults.optimizers import SHAPES
from lab.shared.figures import mean_and_deviation
from tf_largeout import layers, losses, optimizers
from tf_largeout.benchmarks.harness import machine, own_process, tasks
from tf_largeout.benchmarks.harness.evaluation import evaluate
from tf_largeout.benchmarks.harness.files import write_json

_STEPS_PER_EXECUTION, _TEST_EXAMPLES = 16, 10_000
KINDS = ("float32", "bfloat16", "to the nearest")


class _RoundsToNearest:
    """Rounds updated float32 rows to the nearest bfloat16."""

    def update_rows(self, variable, step):
        super().update_rows(variable, step)
        if len(variable.shape) == 2:
            rows = tf.cast(tf.cast(tf.gather(variable, step.ids), tf.bfloat16), tf.float32)
            variable.scatter_update(tf.IndexedSlices(rows, step.ids))


class NearestAdam(_RoundsToNearest, optimizers.LazyAdam):
    """`LazyAdam` that rounds class rows to the nearest bfloat16."""


class NearestRowwiseAdagrad(_RoundsToNearest, optimizers.RowwiseAdagrad):
    """`RowwiseAdagrad` that rounds class rows to the nearest bfloat16."""


class NearestSGD(_RoundsToNearest, optimizers.LazySGD):
    """`LazySGD` that rounds class rows to the nearest bfloat16."""


# name -> (class, class that rounds to the nearest, learning rate for a batch size)
OPTIMIZERS = {
    "LazyAdam": (optimizers.LazyAdam, NearestAdam, lambda _: 1e-2),
    "RowwiseAdagrad": (optimizers.RowwiseAdagrad, NearestRowwiseAdagrad, lambda _: 0.3),
    "LazySGD": (optimizers.LazySGD, NearestSGD, lambda batch_size: batch_size / 5),
}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    report = {"machine": machine.describe(), "runs": []}
    for task in options.tasks:
        for seed in options.seeds:
            for optimizer in options.optimizers:
                for kind in options.kinds:
                    run = {"task": task, "optimizer": optimizer, "rows": kind, "seed": seed}
                    report["runs"].append(_kept(run, options.steps, out))
        print(table(report["runs"], task), flush=True)
        write_json(options.json or out / "row_dtypes.json", report)
    return report


def table(runs, task):
    """P@1 of the runs on a task as Markdown: mean ± standard deviation over the seeds."""
    runs = [run for run in runs if run["task"] == task]
    kinds = list(dict.fromkeys(run["rows"] for run in runs))
    lines = [
        f"| `{task}`, {runs[0]['steps']:,} steps | " + " | ".join(kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for name in dict.fromkeys(run["optimizer"] for run in runs):
        cells = (
            mean_and_deviation(
                [run["p1"] for run in runs if (run["optimizer"], run["rows"]) == (name, kind)]
            )
            for kind in kinds
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def train(task, optimizer, kind, seed=0, steps=None):
    """Trains one model and returns `steps` and the figures of `evaluate`.

    Args:
        task: key of `SHAPES`.
        optimizer: key of `OPTIMIZERS`, for the class rows; LazyAdam trains the encoder.
        kind: one of `KINDS`.
        seed: seed of weights and draws.
        steps: number of training steps; that of `SHAPES` by default.
    """
    batch_size, dim, num_sampled, sampler, usual_steps = SHAPES[task]
    steps = steps or usual_steps
    keras.utils.set_random_seed(seed)
    problem = tasks.load(task, batch_size)
    head = layers.LargeOutput(
        problem.num_classes,
        sampler=sampler(num_sampled, seed=seed),
        embeddings_dtype="bfloat16" if kind == "bfloat16" else None,
    )
    model = keras.Sequential([problem.input(), problem.encoder(dim), head])
    exact, nearest, rate = OPTIMIZERS[optimizer]

    def falling(first):
        return keras.optimizers.schedules.PolynomialDecay(first, steps, 0.0)

    of_rows = (nearest if kind == "to the nearest" else exact)(falling(rate(batch_size)))
    others = optimizers.LazyAdam(falling(1e-2))
    model.compile(
        optimizer=keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(others, {".*large_output.*": of_rows})
        ),
        loss=losses.SampledSoftmaxLoss(),
        steps_per_execution=min(_STEPS_PER_EXECUTION, steps),
    )
    model.fit(problem.train, steps_per_epoch=steps, verbose=0)
    return {"steps": steps, **evaluate(model, *problem.test_sample(_TEST_EXAMPLES))}


def _kept(run, steps, out):
    name = "-".join(str(value) for value in run.values()).replace(" ", "_")
    path = out / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    run |= own_process.call(
        train, run["task"], run["optimizer"], run["rows"], run["seed"], steps
    )
    write_json(path, run)
    print(f"{name}: P@1 {run['p1']:.1f}", flush=True)
    return run


def _parser():
    parser = argparse.ArgumentParser(
        "python -m lab.defaults.row_dtypes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=SHAPES, default=["place_names", "linux_callees"])
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add("--steps", type=int, help="training steps of each run (default: each task's own)")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--out", default="benchmark-results/row_dtypes", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser


if __name__ == "__main__":
    main()
