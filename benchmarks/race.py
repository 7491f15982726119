"""`python -m benchmarks race`: precision against seconds of training.

Each method trains on the same task for the same wall-clock time, in sequence, each in its own
process. Time starts after the first execution, which traces the graph, and stops during
evaluations. The figures are exact and on the test split. An interrupted race, or one that is
given more time, resumes where it ended: its logs and checkpoints are in `--out`.

Methods of other libraries (`pip install 'tf_largeout[rivals]'`) train until they are finished,
whatever time this takes, and are then evaluated. `lab.races.race` has more methods, such as
label trees with bigrams: see `lab/README.md`.
"""

import argparse
import ast
import dataclasses
import pathlib

from benchmarks.harness import machine
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_race
from benchmarks.harness.tasks import task_argument
from benchmarks.harness.training import TrainingRun
from benchmarks.methods.method_table import METHODS, Settings
from benchmarks.rivals import RIVALS
from benchmarks.rivals.rival_run import RivalRun

_DEFAULT_METHODS = ["ours", "stock_best", "tf_nn_sampled_softmax", "tf_nn_nce"]


def main(arguments=None, methods=METHODS):
    """Runs the race of the command line between some of `methods`; returns its report."""
    options = _parser(methods).parse_args(arguments)
    out = pathlib.Path(
        options.out or f"benchmark-results/race-{options.task.replace('/', '-')}"
    )
    logs = race([_run(options, name, out, methods) for name in options.methods])
    shown = {
        name: {key: value for key, value in log.items() if key != "checkpoint"}
        for name, log in logs.items()
    }
    report = {"machine": machine.describe(), "task": options.task, "methods": shown}
    write_json(options.json or out / "race.json", report)
    png = options.png or out / "race.png"
    title = f"{options.task}: exact P@1 against training time"
    draw_race(logs, png, title)
    print(table(logs), f"\nThe picture is {png}.", sep="\n")
    return report


def race(runs):
    """Runs each `ProcessRun` in turn, in its own process; returns the logs by method."""
    return {run.method: run.in_own_process() for run in runs}


def table(logs):
    """Returns the last point of each log as lines of text; '-' if a method has no figure."""
    width = max(len(log["title"]) for log in logs.values())
    lines = [f"{'':{width}}    steps  examples/s    P@1    P@5  in top 5  exact loss  peak MiB"]
    for log in logs.values():
        last = log["points"][-1]
        steps, rate, loss = f"{'-':>8}", f"{'-':>11}", f"{'-':>11}"
        if "steps" in last:
            steps, loss = f"{last['steps']:8,}", f"{last['loss']:11.3f}"
            rate = f"{last['examples'] / last['seconds']:11,.0f}"
        lines.append(
            f"{log['title']:{width}} {steps} {rate} {last['p1']:6.1f} "
            f"{last['p5']:6.1f} {last['top5']:9.1f} {loss} {log['peak_mb']:9,.0f}"
        )
    return "\n".join(lines)


def seconds_to(log, p1):
    """Returns the training seconds until P@1 first reaches `p1`, interpolated linearly."""
    if p1 <= 0:
        return 0.0
    before, reached = 0.0, 0.0
    for point in log["points"]:
        if point["p1"] >= p1:
            share = (p1 - reached) / (point["p1"] - reached)
            return before + share * (point["seconds"] - before)
        before, reached = point["seconds"], point["p1"]
    return None


def _run(options, method, out, methods):
    if method in RIVALS:
        return RivalRun(
            task=options.task,
            method=method,
            directory=str(out),
            sample=options.final_sample or options.sample,
            on_validation=options.validation,
        )
    return TrainingRun(
        task=options.task,
        method=method,
        directory=str(out),
        seconds=options.seconds,
        every=options.every or options.seconds / 8,
        sample=options.sample,
        final_sample=options.final_sample or options.sample,
        overrides=dict(options.set),
        on_validation=options.validation,
        by_cpu=options.by_cpu,
        methods=methods,
    )


def setting_argument(text):
    """Parses `NAME=VALUE` of a field of `Settings` as (name, value)."""
    name, _, value = text.partition("=")
    fields = [field.name for field in dataclasses.fields(Settings)]
    if name not in fields or not value:
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE with NAME among {', '.join(fields)}; got {text!r}"
        )
    try:
        return name, ast.literal_eval(value)
    except ValueError:
        return name, value


def _parser(methods):
    parser = new_parser("race", __doc__)
    add = parser.add_argument
    add("--task", type=task_argument, default="linux_callees")
    add("--methods", nargs="+", choices=[*methods, *RIVALS], default=_DEFAULT_METHODS)
    add("--seconds", type=float, default=240.0, help="training time of each method")
    add("--every", type=float, help="seconds between evaluations (default: an eighth)")
    add("--sample", type=int, default=5000, help="test examples of an evaluation")
    add("--final-sample", type=int, help="of the last one (default: as many)")
    add("--set", type=setting_argument, action="append", default=[], metavar="NAME=VALUE")
    add("--by-cpu", action="store_true", help="seconds of computation, not of the wall clock")
    add("--validation", action="store_true", help="test on a part of the training split")
    add("--out", help="directory of logs and checkpoints")
    return parser
