"""`python -m lab.kernel_trees.absolute`: kernel samplers, with the usual and absolute softmax.

Trains each method for the same CPU seconds, several times with different initial weights, and
tests it exactly at the end. With the absolute softmax, classes are ranked by `|logit|`, and the
exact loss is that of the softmax of `|logit|`. Each run has its own process. Finished runs are
kept in `--out`, so an interrupted series can be continued.
"""

import pathlib

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.tasks import TASKS
from benchmarks.harness.training import TrainingRun
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.methods import METHODS

# Methods and their numbers of negatives; the rates are as in the older runs of the note.
NEGATIVES = {
    "frequency": 1024,
    "frequency_own": 32,
    "kernel_tree_pool_32": 1024,
    "kernel_tree_pool_32_absolute": 1024,
    "kernel_tree_pool": 1024,
    "kernel_tree_pool_absolute": 1024,
    "kernel_tree": 32,
    "kernel_tree_absolute": 32,
    "kernel_tree_32": 32,
    "kernel_tree_32_absolute": 32,
}
_RATES = {"place_names": 1e-2, "linux_callees": 6e-3}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out or f"benchmark-results/absolute-{options.task}")
    report = {"machine": machine.describe(), "task": options.task, "methods": {}}
    for number in options.runs:
        for method in options.methods:
            run = _run(options, method, out / f"run-{number}")
            log = run.in_own_process()
            log.pop("checkpoint", None)
            report["methods"][f"{method}-{NEGATIVES[method]}, run {number}"] = log
            write_json(options.json or out / "absolute.json", report)
    print(table(report["methods"].values()), flush=True)
    return report


def table(logs):
    """Returns the last points of the logs as Markdown: mean ± deviation over the runs."""
    logs, rows = list(logs), []
    for title in dict.fromkeys(log["title"] for log in logs):
        own = [log for log in logs if log["title"] == title]
        last = [log["points"][-1] for log in own]
        rows.append(
            [
                title,
                f"{own[0]['settings']['num_sampled']:,}",
                f"{sum(point['steps'] for point in last) / len(last):,.0f}",
                mean_and_deviation([point["p1"] for point in last]),
                mean_and_deviation([point["loss"] for point in last], 2),
            ]
        )
    return markdown(["method", "negatives", "steps", "P@1", "exact loss"], rows)


def _run(options, method, directory):
    overrides = {"num_sampled": NEGATIVES[method]}
    if options.task in _RATES:
        overrides["learning_rate"] = _RATES[options.task]
    return TrainingRun(
        task=options.task,
        method=method,
        directory=str(directory),
        seconds=options.seconds,
        every=options.seconds,
        sample=options.sample,
        final_sample=options.sample,
        overrides=overrides,
        resumable=False,
        by_cpu=True,
        methods=METHODS,
    )


def _parser():
    parser = new_parser("kernel_trees.absolute", __doc__)
    add = parser.add_argument
    add("--task", choices=TASKS, default="linux_callees")
    add("--methods", nargs="+", choices=NEGATIVES, default=list(NEGATIVES))
    add("--runs", nargs="+", type=int, default=[1, 2, 3], help="numbers of the runs")
    add("--seconds", type=float, default=40.0, help="CPU seconds of training")
    add("--sample", type=int, default=5000, help="examples to test on")
    add("--out", help="directory of the logs")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
