"""`python -m lab.item_tower.steps`: time of a training step with an `ItemTower`.

Trains a model with free class rows and models with an `ItemTower`, in turns, in one process, on
one thread. They are those of `lab.item_tower.cold_classes`. Prints the median CPU time of a
step of each, and the median over the turns of its quotient by the time with free rows.
"""

import numpy as np

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from lab.item_tower.cold_classes import (
    FREE,
    SHARED,
    SHORT,
    TASKS,
    TOWER,
    Problem,
    class_ngrams,
    new_model,
)
from lab.shared import threads
from lab.shared.command_line import new_parser
from lab.shared.step_ends import StepEnds

MODELS = (FREE, TOWER, SHARED, SHORT)
_FIRST = 20  # steps of a turn that are not measured


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), **vars(options), "tasks": {}}
    for task in options.tasks:
        report["tasks"][task] = own_process.call(measure, task, options)
        for name, found in report["tasks"][task].items():
            cpu_ms, quotient = found["cpu_ms"], found["quotient"]
            print(f"{task}, {name}: {cpu_ms:.1f} ms, quotient {quotient:.2f}", flush=True)
        if options.json:
            write_json(options.json, report)
    return report


def measure(task, options):
    """Returns the n-grams per class, and the CPU ms and quotients of `MODELS`."""
    threads.use_one()
    problem = Problem(task, num_test=1)
    models = {name: new_model(problem, task, name, 0, options) for name in MODELS}
    times = {name: [] for name in MODELS}
    for _ in range(options.turns):
        for name, (model, _, batches) in models.items():
            clock = StepEnds()
            steps = {"steps_per_epoch": _FIRST + options.steps, "callbacks": [clock]}
            model.fit(batches, **steps, shuffle=False, verbose=0)
            times[name].append(clock.medians(after=_FIRST)[1])
    times = {name: np.array(of_model) for name, of_model in times.items()}
    return {
        name: {
            "cpu_ms": float(np.median(of_model)),
            "quotient": float(np.median(of_model / times[FREE])),
            "turns": of_model.tolist(),
            "ngrams_per_class": _mean_count(class_ngrams(name, problem)),
        }
        for name, of_model in times.items()
    }


def _mean_count(ngrams):
    return float(np.count_nonzero(ngrams, axis=1).mean())


def _parser():
    parser = new_parser("item_tower.steps", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    add("--steps", type=int, default=80, help="measured steps of a turn")
    add("--turns", type=int, default=7)
    add("--dim", type=int, default=64)
    add("--num-sampled", type=int, default=1024)
    add("--json", help="file for the report")
    return parser


if __name__ == "__main__":
    main()
