"""`python -m lab.daghaghi.table_updates`: what updates of the hash tables would cost and gain.

The paper deletes and re-adds the rows that a step has changed ("update phase"). Ours rebuilds
the tables at growing intervals, with new hash functions. This program measures three things on
a task, with LSH Embedding or another form, and DWTA:

* What a step changes (first seed): the share of classes whose rows it changes, and the share
  of table entries that would move to another bucket after 1, 10 and 50 steps.
* What an update would cost (first seed): the CPU time of a rebuild, and of only hashing the
  changed rows of one step (an update also finds, deletes and adds their entries).
* What fresh tables gain: P@1 with rebuilds in every step, or every few steps, or at growing
  intervals. Rebuilds in every step are the limit of all updates.
"""

import itertools
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import tasks
from benchmarks.harness.files import markdown
from benchmarks.harness.tasks import task_argument
from lab.daghaghi import training
from lab.daghaghi.rows import HASHED, ROWS
from lab.daghaghi.step_costs import cpu_ms, rebuild_ms
from lab.shared.command_line import new_parser
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns
from lab.shared.methods import METHODS
from tf_largeout.papers.lsh.hash_ops import hash_functions, lsh_hash
from tf_largeout.papers.lsh.hash_tables import bits_per_value, most_bits

_AFTER = (1, 10, 50)  # steps


def main(arguments=None):
    """Runs what the command line says, prints the tables and returns the report."""
    options = _parser().parse_args(arguments)
    file = pathlib.Path(options.json or f"{options.out}/table_updates.json")
    kept = KeptRuns(options.out, file, _line)
    for method, budget, seed in itertools.product(
        options.methods, options.budgets, options.seeds
    ):
        run = _run(options, method, budget, seed)
        words = [f"{name}={value}" for name, value in run.items()]
        if seed == options.seeds[0]:
            kept.add(["changes", *words], run, changes, run, options.at)
        if budget == options.budgets[0]:
            for rebuilds in options.rebuilds:
                own = {**run, "rebuilds": rebuilds}
                name = ["rebuilds", *rebuilds, *words]
                kept.add(name, own, training.train, own, options.sample)
    print(tables(kept.runs))
    return kept.report


def schedule(text):
    """Returns EVERY, or EVERY:GROWTH, as the first interval between rebuilds and its growth."""
    every, _, growth = text.partition(":")
    return int(every), float(growth or 1)


def _run(options, method, budget, seed):
    names = ("task", "hashes", "tables", "epochs", "points", "batch_size", "learning_rate")
    settings = {name: getattr(options, name) for name in names}
    return {"method": method, "budget": budget, "seed": seed, **settings}


def changes(run, at):
    """Trains to the last of the steps `at` and 50 more; returns what changes and what it costs.

    Args:
        run: A dict as of `training.planned`.
        at: Steps after which changes are measured.
    """
    training.use_threads(1)
    keras.utils.set_random_seed(run["seed"])
    task = tasks.load(run["task"], run["batch_size"], run["seed"])
    settings = training.settings_of(run, task.num_classes, 1)
    model = METHODS[run["method"]].model(task, settings)
    watch = _Rows(sorted({start + after for start in at for after in (0, *_AFTER)}))
    steps = max(watch.wanted)
    model.fit(task.train, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[watch])
    hashing = _Hashing(run["hashes"], run["tables"], task.num_classes, settings.dim)
    found = [_changed(watch.rows, start, hashing) for start in at]
    touched = watch.rows[at[-1]][: round(found[-1]["rows"] * task.num_classes)]
    return {
        "title": ROWS[run["method"]],
        "num_classes": task.num_classes,
        "changes": found,
        "rebuild_cpu_ms": rebuild_ms(model.layers[-1]),
        "hash_cpu_ms": cpu_ms(lambda: hashing(touched)),
        "step_cpu_ms": watch.milliseconds(),
    }


def _changed(rows, start, hashing):
    """Returns the share of changed rows after a step, and of entries that move."""
    changed = np.any(rows[start] != rows[start + 1], axis=1)
    before = hashing(rows[start])
    moved = {
        str(after): round(float(np.mean(before != hashing(rows[start + after]))), 5)
        for after in _AFTER
    }
    return {"step": start, "rows": round(float(changed.mean()), 5), "entries": moved}


class _Rows(keras.callbacks.Callback):
    """Copies of the class rows after some steps, and the time of steps.

    Args:
        wanted: Numbers of steps.
    """

    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.rows, self._times = set(wanted), {}, []

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.process_time()

    def on_train_batch_end(self, batch, logs=None):
        self._times.append(time.process_time() - self._start)
        steps = int(self.model.optimizer.iterations)
        if steps in self.wanted:
            self.rows[steps] = self.model.layers[-1].class_embeddings().numpy()

    def milliseconds(self):
        """Returns the median CPU time of a step."""
        return round(1e3 * float(np.median(self._times)), 2)


class _Hashing:
    """DWTA hashes with fixed functions: the buckets of rows, as in an `LSHSampler`."""

    def __init__(self, num_hashes, num_tables, num_classes, dim):
        bits = min(num_hashes * bits_per_value("dwta", 8), most_bits(num_classes))
        seed = tf.constant([1, 2], tf.int64)
        self._functions = hash_functions("dwta", dim, num_hashes, num_tables, seed)
        self._family = "dwta", num_hashes, num_tables, bits

    def __call__(self, rows):
        return lsh_hash(rows, self._functions, *self._family).numpy()


def tables(runs):
    """Returns the tables of all runs, as Markdown."""
    head = ["method, budget", "step", "changed rows", *(f"entries, {n}" for n in _AFTER)]
    head += ["rebuild, ms", "hashes of one step, ms", "step, ms"]
    lines, trained = [], []
    for run in runs:
        if "changes" not in run:
            trained.append(
                {**run, "row": run["title"], "schedule": str(tuple(run["rebuilds"]))}
            )
            continue
        costs = [
            f"{run[name]:.1f}" for name in ("rebuild_cpu_ms", "hash_cpu_ms", "step_cpu_ms")
        ]
        for at in run["changes"]:
            shares = [at["rows"], *at["entries"].values()]
            cells = [f"{run['title']}, {run['budget']:g}", str(at["step"])]
            lines.append([*cells, *(f"{100 * share:.1f} %" for share in shares), *costs])
    schedules = {name: name for name in dict.fromkeys(run["schedule"] for run in trained)}
    figures = {"P@1": "p1", "CPU s per epoch": "epoch_seconds"}
    grids = [
        grid(trained, title, "row", "schedule", schedules, f) for title, f in figures.items()
    ]
    return "\n\n".join([markdown(head, lines), *grids])


def _line(run):
    if "changes" in run:
        return f"a step changes {100 * run['changes'][-1]['rows']:.1f} % of the rows"
    return f"P@1 {run['p1']:.1f}, {run['epoch_seconds']:.1f} CPU s per epoch"


def _parser():
    parser = new_parser("daghaghi.table_updates", __doc__)
    add = parser.add_argument
    add("--task", type=task_argument, default="xmc/Amazon-670K")
    add("--methods", nargs="+", choices=HASHED, default=["lsh_embedding"])
    add("--budgets", nargs="+", type=float, default=[0.05], help="the first one for P@1")
    add("--at", nargs="+", type=int, default=[100, 700], help="steps that are looked at")
    add(
        "--rebuilds",
        nargs="+",
        type=schedule,
        default=[(1, 1.0), (10, 1.0), (50, 1.5)],  # the last one: as `HashTableConfig`
        metavar="EVERY[:GROWTH]",
        help="steps to the second build of the tables, and growth of this interval",
    )
    add("--hashes", type=int, default=5)
    add("--tables", type=int, default=50)
    add("--epochs", type=float, default=4.0)
    add("--points", type=int, default=1)
    add("--batch-size", type=int, default=256)
    add("--learning-rate", type=float, default=1e-3)
    add("--seeds", nargs="+", type=int, default=[0])
    add("--sample", type=int, default=2000, help="test examples")
    add("--out", default="benchmark-results/daghaghi", help="directory of the figures")
    add("--json", help="file of all figures")
    return parser


if __name__ == "__main__":
    main()
