"""`python -m lab.factored.steps`: time of a step of the output layer, by number of classes.

Measures the output layer alone: forward pass, gradient of the features, and gradient descent on
the weights. This is the comparison of Vincent et al. 2015, figures 3 and 4. With `--context 4`
it measures a whole model, with an encoder of four words, as in table 1. Prints one line for
each method and number of classes, and draws a picture with logarithmic axes. For the factored
layer it also compares the rate of the products with that of TensorFlow's product of two float32
matrices. With `--upkeep` it measures the cost of stabilisation at a real learning rate.
"""

import itertools
import os

from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.factored.step_case import METHODS, Shape, measure, milliseconds
from lab.factored.upkeep import upkeep
from lab.shared.command_line import new_parser
from lab.shared.factored_heads import FACTORED_HEADS
from lab.shared.plots import draw_factored

# The limit of TensorFlow's CPU allocator, in bytes. The allocator requests powers of two: 16 GB
# for 8,000,000 rows of 9.6 GB. With its default limit, the memory of the machine, it cannot
# allocate another copy of the rows, with a bias, on a machine of 24 GB.
_MOST_MEMORY = 2**40


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault(
        "TF_MKL_ALLOC_MAX_BYTES", str(_MOST_MEMORY)
    )  # for the processes below
    limit = machine.matrix_rate()
    rows, upkeep_rows = [], []
    for num_classes, context in itertools.product(options.num_classes, options.context):
        shape = Shape(
            num_classes, options.dim, options.batch_size, options.num_sampled, context
        )
        for method in options.methods:
            if method.startswith("dense") and num_classes > options.most_dense:
                continue
            row = {"method": method, "num_classes": num_classes, "context": context}
            row |= measure(milliseconds, method, shape, options.steps, options.seconds)
            if method.startswith("factored") and "ms" in row and not context:
                row["share_of_limit"] = flops(shape) / row["cpu_ms"] / 1e6 / limit
            rows.append(row)
            tqdm.write(_line(row))
        for name in FACTORED_HEADS if options.upkeep else ():
            row = {"method": f"upkeep, {name}", "num_classes": num_classes}
            row |= measure(upkeep, name, shape, options.upkeep)
            upkeep_rows.append(row)
            tqdm.write(_upkeep_line(row))
    report = {"machine": machine.describe(), "float32_gflops": limit, **vars(options)}
    report["rows"], report["upkeep_rows"] = rows, upkeep_rows
    if options.json:
        write_json(options.json, report)
    draw_factored(report, options.png)
    return report


def flops(shape):
    """Returns the floating-point operations of a factored step: its products alone.

    Of a batch up to the width: seven products of a `[width, width]` matrix and a batch (Q H,
    U H, U'Z, U^-1 H, and the updates of U, U^-1 and, by half of it, Q), three and a half of a
    batch and a batch, with a solve among them, and its factors. Of a larger one: six of the
    former, and products and a solve of `[width, width]` matrices instead of the latter.
    """
    batch, width = shape.batch_size, shape.dim + 1
    if batch <= width:
        multiplications = 7 * batch * width**2 + 3.5 * batch**2 * width + batch**3 / 3
    else:
        multiplications = 6 * batch * width**2 + 13 / 3 * width**3
    return 2 * multiplications


def _line(row):
    head = f"{row['num_classes']:>11,} classes, {row['method']:34}"
    if row["context"]:
        head += f" and encoder of {row['context']} words"
    if "error" in row:
        return f"{head} {row['error']}"
    share = row.get("share_of_limit")
    behind = f", {share:4.0%} of the limit" if share else ""
    percentiles = f"{row['ms_10']:.2f} to {row['ms_90']:.2f}"
    return f"{head} {row['ms']:9.2f} ms ({percentiles}), processor {row['cpu_ms']:.2f}{behind}"


def _upkeep_line(row):
    head = f"{row['num_classes']:>11,} classes, {row['method']:34}"
    if "error" in row:
        return f"{head} {row['error']}"
    return f"{head} {row['upkeep']:6.1%} of {row['steps']} steps at rate {row['rate']:g}"


def _parser():
    parser = new_parser("factored.steps", __doc__)
    add = parser.add_argument
    add("--num-classes", type=int, nargs="+", default=[8_000, 80_000, 793_471, 8_000_000])
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--context", type=int, nargs="+", default=[0], help="words of an encoder; 0: none")
    add("--dim", type=int, default=300)
    add("--batch-size", type=int, default=128)
    add("--num-sampled", type=int, default=1024)
    add("--steps", type=int, default=200, help="at most, per method")
    add("--seconds", type=float, default=20.0, help="about this much per method")
    add("--most-dense", type=int, default=1_000_000, help="classes of a dense layer")
    add("--upkeep", type=int, default=0, help="steps at a real rate, by each loss")
    add("--json", help="file for the figures")
    add("--png", default="benchmark-results/factored.png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
