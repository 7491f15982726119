"""`python -m lab.vijayanarasimhan.training`: WTA softmax and hierarchical softmax.

Trains each method on a task, for the same CPU time (`--seconds`) or for the same number of
steps (`--steps`), and tests it exactly at the end. Time is that of one thread, without tracing
and evaluation. Learning rates fall linearly to zero. Each run has its own process. Its figures
are kept in `--out`, so an interrupted series can be continued.
"""

import itertools

import keras

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import markdown
from benchmarks.harness.tasks import TASKS
from benchmarks.harness.training import ENDLESS, Stopwatch, TrainingClock
from lab.shared import threads
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from lab.shared.methods import METHODS

COMPARED = ["wta_16", "hierarchical", "huffman"]
_BATCH = 32  # of an evaluation; a binary tree needs several tensors of all logits
_FIGURES = {"p1": 1, "p5": 1, "top5": 1, "loss": 2}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/training.json", _line)
    until = {"steps": options.steps} if options.steps else {"seconds": options.seconds}
    words = [f"{name}={value:g}" for name, value in until.items()]
    for seed, task, method in itertools.product(options.seeds, options.tasks, options.methods):
        settings = {"task": task, "method": method, "seed": seed, **until}
        kept.add([task, method, *words, seed], settings, train, settings, options.sample)
    print(table(kept.runs), flush=True)
    return kept.report


def train(run, sample):
    """Trains one model; returns its figures and costs.

    Args:
        run: `task`, `method`, `seed`, and `seconds` of CPU time or `steps`.
        sample: test examples.
    """
    model, task, costs = trained(**run)
    title = METHODS[run["method"]].title
    figures = evaluate(model, *task.test_sample(sample), batch_size=_BATCH)
    return {"title": title, **costs, **{name: figures[name] for name in _FIGURES}}


def trained(task, method, seed, seconds=None, steps=None):
    """Returns a trained model, its task, and its `steps` and `cpu_seconds` of training."""
    threads.use_one()
    keras.utils.set_random_seed(seed)
    settings = METHODS[method].settings_for(task)
    loaded = tasks.load(task, settings.batch_size, seed)
    model, stopwatch = METHODS[method].model(loaded, settings), Stopwatch()
    clock = TrainingClock(
        seconds,
        steps or seconds,
        lambda *_: {},
        stopwatch=stopwatch,
        by_cpu=True,
        anneal=settings.anneal,
        steps=steps,
    )
    model.fit(
        loaded.train, steps_per_epoch=ENDLESS, callbacks=[clock], shuffle=False, verbose=0
    )
    made = int(model.optimizer.iterations)
    return model, loaded, {"trained_steps": made, "cpu_seconds": stopwatch.cpu}


def table(runs):
    """Returns the runs as Markdown, one line per task and method: means over the seeds."""
    rows = []
    for task, title in dict.fromkeys((run["task"], run["title"]) for run in runs):
        own = [run for run in runs if (run["task"], run["title"]) == (task, title)]
        cells = [f"{task}, {title}", str(len(own))]
        for name, digits in {"trained_steps": 0, "cpu_seconds": 0, **_FIGURES}.items():
            cells.append(mean_and_deviation([run[name] for run in own], digits))
        rows.append(cells)
    head = ["method", "seeds", "steps", "CPU seconds", "P@1", "P@5", "in top 5", "exact loss"]
    return markdown(head, rows)


def _line(run):
    return f"P@1 {run['p1']:.1f}, {run['trained_steps']} steps, {run['cpu_seconds']:.0f} CPU s"


def _parser():
    parser = new_parser("vijayanarasimhan.training", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=["place_names", "linux_callees"])
    add("--methods", nargs="+", choices=METHODS, default=COMPARED)
    add("--seconds", type=float, default=25.0, help="CPU time of a training")
    add("--steps", type=int, help="steps of a training, instead of --seconds")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--sample", type=int, default=1000, help="test examples")
    add("--out", default="benchmark-results/vijayanarasimhan", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
