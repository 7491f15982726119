"""`python -m tf_largeout.benchmarks exact_softmax`: time of exact softmax steps.

Milliseconds a step (forward, backward and update) of `SoftmaxLoss` in float32, by bfloat16
products and with small mass left out of the gradient, beside Keras's `Dense` and Adam: at the
start of training, and with the classes of a model that was trained for `--seconds`, which is
surer. All models take turns step by step, on one core and on two; figures are medians.

`limit` is what the machine allows: four products of [batch, dim] with all classes at its
measured rate for that type, then the bytes that have to move at its measured bandwidth. A step
reads the classes twice and writes their gradient; the update reads four arrays of that size and
writes three.
"""

import argparse
import pathlib
import tempfile

from tf_largeout.benchmarks import machine, own_process
from tf_largeout.benchmarks.exact_softmax_case import Problem, figures, save_problem
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.tasks import TASKS

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
            print(table(run), "", sep="\n", flush=True)
    if options.json:
        write_json(options.json, report)
    return report


def limits_ms(problem, batch_size, limits):
    """Least time of a step for each type of products, see the head of this file."""
    numbers = problem["num_classes"] * problem["dim"]
    memory = _PASSES * 4 * numbers / (limits["gb_per_s"] * 1e9)
    return {
        dtype: 1e3 * (8 * batch_size * numbers / (limits[dtype] * 1e9) + memory)
        for dtype in ("float32", "bfloat16")
    }


def table(run):
    """The figures of one run as Markdown."""
    states = list(dict.fromkeys(row["state"] for row in run["rows"]))
    times = {(row["variant"], row["state"]): row["ms"] for row in run["rows"]}
    lines = [
        f"| ms a step, cores: {run['cores']} | " + " | ".join(states) + " |",
        "|---" * (len(states) + 1) + "|",
    ]
    for variant in dict.fromkeys(row["variant"] for row in run["rows"]):
        cells = (f"{times[variant, state]:.0f}" for state in states)
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    for dtype, limit in run["limit_ms"].items():
        lines.append(f"| limit, {dtype} | " + " | ".join([f"{limit:.0f}"] * len(states)) + " |")
    return "\n".join(lines)


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks exact_softmax",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--task", choices=TASKS, default="place_names")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training before")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="steps of each model")
    parser.add_argument("--json", help="file for the figures")
    return parser
