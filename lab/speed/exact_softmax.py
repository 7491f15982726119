"""`python -m lab.speed.exact_softmax`: time of a step of the exact softmax.

Measures milliseconds per step (forward, backward and update) of `SoftmaxLoss` with float32 and
bfloat16 products, and of Keras's `Dense` with Adam. Classes and features are those of a model
that was trained for `--seconds`. All models take turns step by step, on one core and on two.
Figures are medians.

`limit` is what the machine allows: four products of `[batch, dim]` with all classes at the
measured rate for that type, then the bytes that must be moved at the measured bandwidth. A step
reads the classes twice and writes their gradient. The update reads four arrays of that size and
writes three.

The second table shows what a gradient could skip: the share of tiles of 96 consecutive classes
and 64 examples whose probabilities, all together, are below a limit for each example. Examples
are in their order, or grouped by how certain they are.
"""

import pathlib
import tempfile

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.tasks import TASKS
from lab.shared.command_line import new_parser
from lab.speed.exact_softmax_case import Problem, figures, save_problem

_PASSES = 2 + 1 + 7


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        problem = Problem(
            str(pathlib.Path(folder) / "problem.npz"),
            options.task,
            options.batch_size,
            options.seconds,
        )
        report["problem"] = own_process.call(save_problem, problem)
        for cores in options.cores:
            run = own_process.call(figures, problem, cores, options.rounds)
            run["limit_ms"] = limits_ms(report["problem"], options.batch_size, run["limits"])
            report["runs"].append(run)
    print(times_table(report["runs"]), left_out_table(report["problem"]), sep="\n\n")
    if options.json:
        write_json(options.json, report)
    return report


def limits_ms(problem, batch_size, limits):
    """Returns the least time of a step for each type of products; see the module docstring."""
    numbers = problem["num_classes"] * problem["dim"]
    memory = _PASSES * 4 * numbers / (limits["gb_per_s"] * 1e9)
    return {
        dtype: 1e3 * (8 * batch_size * numbers / (limits[dtype] * 1e9) + memory)
        for dtype in ("float32", "bfloat16")
    }


def times_table(runs):
    """Returns the milliseconds per step as Markdown, with a column for each number of cores."""
    columns = [
        {
            **{row["variant"]: row["ms"] for row in run["rows"]},
            **{f"limit, {dtype}": limit for dtype, limit in run["limit_ms"].items()},
        }
        for run in runs
    ]
    head = ["ms per step, cores", *(str(run["cores"]) for run in runs)]
    rows = [[name, *(f"{column[name]:.0f}" for column in columns)] for name in columns[0]]
    return markdown(head, rows)


def left_out_table(problem):
    """Returns the shares of skipped tiles in per cent, as Markdown."""
    head = ["skipped probability of an example, at most", "in order", "most certain grouped"]
    shares = problem["left_out"].items()
    return markdown(head, [[str(mass), *(f"{100 * x:.1f}" for x in of)] for mass, of in shares])


def _parser():
    parser = new_parser("speed.exact_softmax", __doc__)
    parser.add_argument("--task", choices=TASKS, default="place_names")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=120.0, help="of training before")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="steps of each model")
    parser.add_argument("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
