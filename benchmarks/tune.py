"""`python -m benchmarks tune`: the best learning rate of each method.

Trains each method once with each rate, for the same wall-clock time, and tests on a part of the
training split. The rates are multiples of the method's own rate. A `FactoredOutput` has a
second rate, `--rate class_rate`. Each run has a folder in `--out`. A finished run is not
repeated; an interrupted one starts from the beginning.
"""

import argparse
import pathlib

from benchmarks.harness import machine
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.tasks import task_argument
from benchmarks.harness.training import TrainingRun
from benchmarks.methods.method_table import METHODS
from benchmarks.race import setting_argument

_FIGURES = ("p1", "p3", "p5", "psp1", "psp3", "psp5", "loss", "steps", "seconds")


def main(arguments=None, methods=METHODS):
    """Tunes some of `methods` as the command line says and returns the report."""
    options = _parser(methods).parse_args(arguments)
    out = pathlib.Path(
        options.out or f"benchmark-results/tune-{options.task.replace('/', '-')}"
    )
    found = {}
    for method in options.methods:
        rows = []
        for factor in sorted(set(options.rates)):
            run = _run(options, method, factor, out, methods)
            rows.append(measured(run, factor, options.rate))
            print(line(method, rows[-1]), flush=True)
        best = max(rows, key=lambda row: row["p1"])
        found[method] = {"runs": rows, "best": best}
        print(line(method, best), f"is the best{_note(rows, best)}", flush=True)
    report = {"machine": machine.describe(), "task": options.task, "methods": found}
    write_json(options.json or out / "tune.json", report)
    return report


def measured(run, factor, name):
    """Trains a `TrainingRun`; returns its last figures and the rate."""
    log = run.in_own_process()
    last = {name: log["points"][-1][name] for name in _FIGURES}
    rate = getattr(run.settings, name)
    return {"factor": factor, "rate": rate, **last, "settings": log["settings"]}


def line(method, row):
    """Formats a run as a line of text."""
    return (
        f"{method:22} rate {row['rate']:<9.3g} (x{row['factor']:g}) "
        f"P@1 {row['p1']:5.1f}  PSP@1 {row['psp1']:5.1f}  loss {row['loss']:7.3f} "
        f"{row['steps']:7,} steps"
    )


def _note(rows, best):
    at_edge = len(rows) > 1 and best in (rows[0], rows[-1])
    return ", at the edge of the rates: try further ones" if at_edge else ""


def _run(options, method, factor, out, methods):
    overrides = dict(options.set)
    own = getattr(methods[method].settings_for(options.task, **overrides), options.rate)
    return TrainingRun(
        task=options.task,
        method=method,
        directory=str(out / f"{method}-{options.rate}-x{factor:g}"),
        seconds=options.seconds,
        every=options.seconds,
        sample=options.sample,
        final_sample=options.sample,
        overrides={**overrides, options.rate: own * factor},
        on_validation=True,
        resumable=False,
        methods=methods,
    )


def positive(text):
    """Parses a positive number of the command line."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number; got {text!r}")
    return value


def _parser(methods):
    parser = new_parser("tune", __doc__, has_picture=False)
    add = parser.add_argument
    add("--task", type=task_argument, default="linux_callees")
    add("--methods", nargs="+", choices=methods, required=True)
    add(
        "--rates",
        nargs="+",
        type=positive,
        default=[0.5, 1.0, 2.0],
        help="factors of each method's own learning rate",
    )
    add("--rate", choices=["learning_rate", "class_rate"], default="learning_rate")
    add("--seconds", type=positive, default=120.0, help="training time of each run")
    add("--sample", type=int, default=5000, help="validation examples of an evaluation")
    add("--set", type=setting_argument, action="append", default=[], metavar="NAME=VALUE")
    add("--out", help="directory of the runs' logs")
    return parser
