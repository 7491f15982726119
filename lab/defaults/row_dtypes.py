"""`python -m lab.defaults.row_dtypes`: P@1 with class rows in float32 and in bfloat16.

Trains one model per task, optimizer, kind of rows and seed, with a learning rate that falls to
zero, and everything else equal. The kinds are float32, `embeddings_dtype="bfloat16"`, which
rounds at random, and bfloat16 rows that are rounded to the nearest number after each step.
Prints P@1 as a table; for `linux_tokens` also that of the test examples whose class has 200 or
more training examples. Each run has its own process. Its figures are kept in `--out`, so an
interrupted table can be continued.
"""

import itertools

import keras
import numpy as np
import tensorflow as tf

from lab.defaults.optimizers import SHAPES, figures
from lab.shared.command_line import new_parser
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns
from tf_largeout import optimizers, retrieval

KINDS = ("float32", "bfloat16", "to the nearest")
_OFTEN = 200  # training examples of a class


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
    file = options.json or f"{options.out}/row_dtypes.json"
    kept = KeptRuns(options.out, file)
    for task in options.tasks:
        for seed, optimizer, kind in itertools.product(
            options.seeds, options.optimizers, options.kinds
        ):
            run = {"task": task, "optimizer": optimizer, "rows": kind, "seed": seed}
            kept.add(run.values(), run, train, task, optimizer, kind, seed, options.steps)
        for figure in ("p1", "p1_often") if task == "linux_tokens" else ("p1",):
            print(table(kept.runs, task, figure), flush=True)
    return kept.report


def table(runs, task, figure="p1"):
    """Returns P@1 of the runs on a task as Markdown: optimizers as lines, kinds as columns."""
    runs = [run for run in runs if run["task"] == task]
    kinds = {run["rows"]: run["rows"] for run in runs}
    corner = f"`{task}`, {runs[0]['steps']:,} steps"
    return grid(runs, corner, "optimizer", "rows", kinds, figure)


def train(task, optimizer, kind, seed=0, steps=None):
    """Trains one model and returns `steps` and figures of the test examples.

    Args:
        task: key of `SHAPES`.
        optimizer: key of `OPTIMIZERS`, for the class rows; LazyAdam trains the encoder.
        kind: one of `KINDS`.
        seed: seed of weights and draws.
        steps: number of training steps; that of `SHAPES` by default.
    """
    exact, nearest, rate = OPTIMIZERS[optimizer]

    def make_optimizer(batch_size, steps):
        def falling(first):
            return keras.optimizers.schedules.PolynomialDecay(first, steps, 0.0)

        of_rows = (nearest if kind == "to the nearest" else exact)(falling(rate(batch_size)))
        others = optimizers.LazyAdam(falling(1e-2))
        return keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(others, {".*large_output.*": of_rows})
        )

    dtype = "bfloat16" if kind == "bfloat16" else None
    measure = _by_count if task == "linux_tokens" else None
    return figures(
        task, make_optimizer, seed, steps, 10_000, measure=measure, embeddings_dtype=dtype
    )


def _by_count(model, problem, sample):
    """Returns P@1, also of the examples whose class is often a label in training, or rarely."""
    features, labels = problem.test_sample(sample)
    _, best = retrieval.predict_top_k(model, features, 1, batch_size=256, verbose=0)
    hits = 100.0 * (best[:, 0] == labels)
    often = problem.label_counts[labels] >= _OFTEN
    return {
        "p1": np.mean(hits),
        "p1_often": np.mean(hits[often]),
        "p1_rarely": np.mean(hits[~often]),
        "often": int(np.sum(often)),
        "often_classes": int(np.sum(problem.label_counts >= _OFTEN)),
    }


def _parser():
    parser = new_parser("defaults.row_dtypes", __doc__)
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
