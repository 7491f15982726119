"""`python -m lab.daghaghi`: the methods of Daghaghi et al. 2021 on given tasks.

Trains each method on each task for the same number of epochs, and tests it exactly at regular
points. All methods have the same encoder, batch size and constant learning rate. A budget is
the number of negatives as a share of the classes: for each example with LSH and TopK, for the
whole batch with the others. Each run has its own process; its time is that of one thread,
without the first steps (tracing, the first hash tables) and evaluations. Its figures are kept
in `--out`, so an interrupted series can be continued.

The first value of `--budgets`, `--hashes` and `--num-tables` is that of the comparison of all
methods (tables 2 and 3 of the paper, figures 4 and 5). The others are trained too: budgets with
both forms of LSH and with the sampled softmax (table 4), numbers of tables (tables 5 and 6) and
of hashes (table 7) with LSH Embedding. The paper's settings are the defaults; its data sets are
`xmc/NAME` and `xmc/NAME@COUNT` if you have the files of Amazon-670K, Wiki-325K or ODP.
"""

import itertools
import math
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.tasks import task_argument
from benchmarks.harness.training import ENDLESS, Stopwatch, TrainingClock
from lab.daghaghi import plots, tables
from lab.daghaghi.rows import BY_BUDGET, HASHED, ROWS
from lab.shared.command_line import new_parser
from lab.shared.kept_runs import KeptRuns
from lab.shared.methods import METHODS
from tf_largeout.samplers import LSHSampler

_FIGURES = ("p1", "p3", "p5", "loss")
_LONGEST_CALL = 16  # steps inside one call of the compiled train function


def main(arguments=None):
    """Runs what the command line says, prints the tables, draws, and returns the report."""
    options = _parser().parse_args(arguments)
    file = pathlib.Path(options.json or f"{options.out}/training.json")
    kept = KeptRuns(options.out, file, _line)
    for run in planned(options):
        words = [f"{name}={value}" for name, value in run.items() if value is not None]
        kept.add(words, run, train, run, options.sample, options.threads)
    print(tables.all_tables(kept.runs), flush=True)
    for task in options.tasks:
        own = [run for run in tables.drawn(kept.runs) if run["task"] == task]
        name = re.sub("[^A-Za-z0-9]+", "_", task)
        plots.draw_task(own, file.with_name(f"{file.stem}_{name}.png"))
    return kept.report


def planned(options):
    """Returns the settings of all runs; those of the comparison come first for each task."""
    main = {
        "budget": options.budgets[0],
        "hashes": options.hashes[0],
        "tables": options.num_tables[0],
    }
    grid = [(method, main) for method in options.methods]
    for name, values in (
        ("budget", options.budgets),
        ("tables", options.num_tables),
        ("hashes", options.hashes),
    ):
        varied = BY_BUDGET if name == "budget" else ["lsh_embedding"]
        grid += [
            (method, {**main, name: value})
            for value in values[1:]
            for method in varied
            if method in options.methods
        ]
    fixed = {
        "epochs": options.epochs,
        "points": options.points,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        **({"on_validation": True} if options.on_validation else {}),
    }
    return [
        {"task": task, "method": method, **_used(method, values), "seed": seed, **fixed}
        for task, seed, (method, values) in itertools.product(
            options.tasks, options.seeds, grid
        )
    ]


def _used(method, values):
    """Returns the values that the method uses, and None for the others."""
    unused = () if method in HASHED else ("hashes", "tables")
    unused = values if method == "softmax" else unused
    return {name: None if name in unused else value for name, value in values.items()}


def use_threads(threads):
    """Limits the threads of an op, and runs one op at a time; before TensorFlow has run any."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def train(run, sample, threads=1):
    """Trains one model; returns its figures at each point, and its costs.

    Args:
        run: a dict of `planned`.
        sample: test examples of each evaluation; None for all.
        threads: CPU threads; 0 for TensorFlow's choice.
    """
    if threads:
        use_threads(threads)
    keras.utils.set_random_seed(run["seed"])
    on_validation = run.get("on_validation", False)
    task = tasks.load(run["task"], run["batch_size"], run["seed"], on_validation)
    in_epoch = math.ceil(task.num_examples / run["batch_size"])
    every = max(1, round(in_epoch / run["points"]))
    calls = max([c for c in range(1, _LONGEST_CALL + 1) if every % c == 0 and c < every] or [1])
    method, settings = METHODS[run["method"]], settings_of(run, task.num_classes, calls)
    test, stopwatch, points, last = task.test_sample(sample), Stopwatch(), [], {}

    def add_point(model, seconds, steps):
        found = evaluate(model, *test, score=method.score)
        last.update({name: found[name] for name in _FIGURES}, health=_health(model))
        points.append(
            {
                "steps": steps,
                "epochs": round(steps / in_epoch, 3),
                "cpu_seconds": round(stopwatch.cpu, 3),
                "p1": round(found["p1"], 2),
            }
        )
        return found

    steps = every * max(1, round(run["epochs"] * in_epoch / every))
    clock = TrainingClock(None, every, add_point, stopwatch=stopwatch, steps=steps)
    model = method.model(task, settings)
    model.fit(task.train, steps_per_epoch=ENDLESS, callbacks=[clock], shuffle=False, verbose=0)
    timed = points[-1]["steps"] - calls
    return {
        "title": ROWS[run["method"]],
        "num_classes": task.num_classes,
        "num_examples": task.num_examples,
        "num_sampled": None if run["budget"] is None else settings.num_sampled,
        "label_counts": _counts_by_rank(task.label_counts),
        "epoch_seconds": points[-1]["cpu_seconds"] / timed * in_epoch,
        **last,
        "curve": points,
    }


def _health(model):
    """Returns what the hash tables of an `LSHSampler` report, or None."""
    head = model.layers[-1]
    sampler = getattr(head, "sampler", None)
    return sampler.health(head) if isinstance(sampler, LSHSampler) else None


def settings_of(run, num_classes, calls):
    """Returns the `Settings` of a run; no task has its own ones.

    `rebuilds`, if the run has it, is the first interval between rebuilds of the tables and its
    growth factor.
    """
    method = run["method"]
    options = dict(METHODS[method].settings.get("search_options", {}))
    if run["hashes"] is not None:
        sizes = {"num_hashes": run["hashes"], "num_tables": run["tables"]}
        options["tables"] = {"hash": "dwta", **sizes}
    if "rebuilds" in run:
        every, growth = run["rebuilds"]
        options["tables"] |= {"rebuild_every": every, "rebuild_growth": growth}
    return METHODS[method].settings_for(
        None,
        batch_size=run["batch_size"],
        learning_rate=run["learning_rate"],
        num_sampled=max(1, round((run["budget"] or 0) * num_classes)),
        search_options=options,
        steps_per_execution=calls,
        anneal=0.0,
    )


def _counts_by_rank(counts):
    """Returns `[rank, count]` of classes by falling count, at powers of 2 and at the end."""
    falling = np.sort(counts)[::-1]
    ranks = [2**i for i in range(len(falling).bit_length())]
    return [[rank, int(falling[rank - 1])] for rank in dict.fromkeys([*ranks, len(falling)])]


def _line(run):
    return f"P@1 {run['p1']:.1f}, {run['epoch_seconds']:.1f} CPU s per epoch"


def _parser():
    parser = new_parser("daghaghi", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", type=task_argument, default=["xmc/Amazon-670K"])
    add("--methods", nargs="+", choices=ROWS, default=list(ROWS))
    add("--epochs", type=float, default=10.0)
    add("--points", type=int, default=1, help="evaluations per epoch")
    add("--budgets", nargs="+", type=float, default=[0.05], help="share of the classes")
    add("--hashes", nargs="+", type=int, default=[6], help="K: DWTA hashes per table")
    add("--num-tables", nargs="+", type=int, default=[400], help="L: hash tables")
    add("--batch-size", type=int, default=1024)
    add("--learning-rate", type=float, default=1e-4, help="of Adam, constant")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--sample", type=int, default=5000, help="test examples")
    add("--on-validation", action="store_true", help="hold out training examples as tests")
    add("--threads", type=int, default=1, help="of a training; 0: TensorFlow's choice")
    add("--out", default="benchmark-results/daghaghi", help="directory of the figures")
    add("--json", help="file of all figures; the pictures are written to its folder")
    return parser


if __name__ == "__main__":
    main()
