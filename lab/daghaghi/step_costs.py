"""`python -m lab.daghaghi.step_costs`: CPU time of a training step by number of classes.

Measures a step of each form of `LSHSampler`, of static negatives and of the full softmax, with
the forward and the backward pass and `LazyAdam`; the time of a rebuild of the hash tables; and
their memory. No rebuild falls into the measured steps. Features and labels are random, and all
forms draw the same number of classes: for each example with the forms "walk", "frequent" and
"head", for the whole batch with the others. Each case has its own process.
"""

import itertools
import pathlib
import time

import numpy as np
import tensorflow as tf

from benchmarks.harness import machine
from benchmarks.harness.files import markdown
from benchmarks.harness.step_case import StepTimes, dense_task
from benchmarks.harness.step_clock import WARM_UP, StepClock
from lab.daghaghi import plots
from lab.shared.command_line import new_parser
from lab.shared.kept_runs import KeptRuns
from lab.shared.methods import METHODS

_MOST_SECONDS = 20.0
_DWTA = {"hash": "dwta", "num_hashes": 5}
# Title: method, and arguments of the sampler.
FORMS = {
    "LSH Embedding, walk, DWTA": ("lsh_embedding", {"tables": _DWTA}),
    "LSH Label, walk, DWTA": ("lsh_label", {"tables": _DWTA}),
    "LSH Embedding and Label, walk, DWTA": ("lsh_both", {"tables": _DWTA}),
    "LSH, frequent, WTA": ("wta", {}),
    "LSH, head of 16, SimHash": ("lsh_head", {"num_hard": 16, "start_step": 0}),
    "LSH, pool, SimHash": ("lsh_pool", {}),
    "uniform": ("uniform", {}),
    "log-uniform": ("log_uniform", {}),
    "full softmax": ("softmax", {}),
}


def main(arguments=None):
    """Measures what the command line asks for, prints the table, draws, returns the report."""
    options = _parser().parse_args(arguments)
    file = pathlib.Path(options.json or f"{options.out}/step_costs.json")
    kept = KeptRuns(options.out, file, _line)
    shape = {name: getattr(options, name) for name in ("dim", "batch_size", "num_sampled")}
    for num_classes, form in itertools.product(options.num_classes, options.forms):
        if form != "full softmax" or num_classes <= options.full:
            case = {"form": form, "num_classes": num_classes, **shape}
            kept.add(["step", num_classes, form], case, measure, case, options.steps)
    print(table(kept.runs))
    plots.draw_costs(kept.runs, file.with_suffix(".png"))
    return kept.report


def measure(case, steps):
    """Returns the costs of a case: a form with a number of classes and the sizes of a step."""
    machine.use("cpu", 1)
    sizes = {name: case[name] for name in ("dim", "batch_size", "num_sampled")}
    task = dense_task(case["num_classes"], case["dim"], case["batch_size"])
    name, arguments = FORMS[case["form"]]
    settings = METHODS[name].settings_for(
        None, **sizes, search_options=arguments, steps_per_execution=1
    )
    model, clock = METHODS[name].model(task, settings), StepClock(steps, _MOST_SECONDS)
    model.fit(
        task.train,
        steps_per_epoch=WARM_UP + steps,
        verbose=0,
        shuffle=False,
        callbacks=[StepTimes(clock)],
    )
    low, median, high = np.percentile(clock.cpu_milliseconds, [10, 50, 90])
    figures = {"cpu_ms": median, "cpu_ms_10": low, "cpu_ms_90": high}
    head = model.layers[-1]
    tables = [w for w in head.weights if w.name.startswith("sampler_table")]
    if tables:
        figures["rebuild_cpu_ms"] = rebuild_ms(head)
        figures["tables_mb"] = sum(4 * int(np.prod(w.shape)) for w in tables) / 2**20
    return {name: round(float(value), 2) for name, value in figures.items()}


def rebuild_ms(head):
    """Returns the CPU milliseconds of a rebuild of the hash tables, without tracing."""
    return cpu_ms(tf.function(lambda: head.sampler.rebuild_replica(head)), times=1)


def cpu_ms(function, times=5):
    """Returns the median CPU milliseconds of a call, after a first one that may trace."""
    function()
    found = []
    for _ in range(times):
        start = time.process_time()
        function()
        found.append(1e3 * (time.process_time() - start))
    return round(float(np.median(found)), 2)


def table(rows):
    """Returns a step's CPU ms by form and number of classes, and the cost of the tables."""
    counts = sorted({row["num_classes"] for row in rows})
    found = {(row["form"], row["num_classes"]): row for row in rows}
    forms = list(dict.fromkeys(row["form"] for row in rows))

    def lines(figure):
        for form in forms:
            values = [found.get((form, count), {}).get(figure) for count in counts]
            if any(value is not None for value in values):
                yield [form, *("" if v is None else f"{v:,.1f}" for v in values)]

    titles = {
        "cpu_ms": "CPU ms per step",
        "rebuild_cpu_ms": "CPU ms of a rebuild",
        "tables_mb": "MiB of the tables",
    }
    head = [f"{count:,}" for count in counts]
    return "\n\n".join(markdown([t, *head], list(lines(f))) for f, t in titles.items())


def _line(case):
    return f"{case['cpu_ms']:.1f} CPU ms per step"


def _parser():
    parser = new_parser("daghaghi.step_costs", __doc__)
    add = parser.add_argument
    add(
        "--num-classes",
        type=int,
        nargs="+",
        default=[10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7],
    )
    add("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    add("--full", type=int, default=10**6, help="most classes of the full softmax")
    add("--dim", type=int, default=16)
    add("--batch-size", type=int, default=64)
    add("--num-sampled", type=int, default=256)
    add("--steps", type=int, default=20)
    add("--out", default="benchmark-results/daghaghi", help="directory of the figures")
    add("--json", help="file of all figures; the picture is written next to it")
    return parser


if __name__ == "__main__":
    main()
