"""`python -m lab.item_tower.steps`: time of a training step with an `ItemTower`.

Trains a model with free class rows and one with an `ItemTower`, in turns, in one process. Both
are those of `lab.item_tower.cold_classes`. Prints the median CPU time of a step of each, and
the median of the quotients of the turns.
"""

import numpy as np

from lab.item_tower.cold_classes import TASKS, Problem, new_model
from lab.shared.command_line import new_parser
from lab.shared.step_ends import StepEnds
from tf_largeout.benchmarks.harness import machine, own_process
from tf_largeout.benchmarks.harness.files import write_json

MODELS = ("free rows", "tower")
_FIRST = 20  # steps of a turn that are not measured


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), **vars(options), "tasks": {}}
    for task in options.tasks:
        report["tasks"][task] = own_process.call(measure, task, options)
        print(task, report["tasks"][task], flush=True)
        if options.json:
            write_json(options.json, report)
    return report


def measure(task, options):
    """Returns the CPU ms of a step of each of `MODELS`, and the quotient."""
    problem = Problem(task, num_test=1)
    models = {name: new_model(problem, task, name, 0, options) for name in MODELS}
    times = {name: [] for name in MODELS}
    for _ in range(options.turns):
        for name, (model, _, batches) in models.items():
            clock = StepEnds()
            steps = {"steps_per_epoch": _FIRST + options.steps, "callbacks": [clock]}
            model.fit(batches, **steps, shuffle=False, verbose=0)
            times[name].append(clock.medians(after=_FIRST)[1])
    of_tower, of_free = np.array(times["tower"]), np.array(times["free rows"])
    return {
        **{f"{name}, CPU ms": float(np.median(times[name])) for name in MODELS},
        "quotient": float(np.median(of_tower / of_free)),
        "turns": times,
    }


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
