"""`python -m lab.speed.products`: the products of a sampled step, in several layouts.

For logits, the gradient of the features and the gradient of the rows, measures GFLOP per CPU
second of `tf.matmul` on one thread, as the losses call it and in other layouts: a factor that
is transposed first, or the transposed product of swapped factors. For comparison, it measures
the exact scan of `ops.class_statistics`, and a product of 1,024 x 1,024 matrices. Then it
measures whole steps of `SampledSoftmaxLoss` on the same shapes. Two processes take turns: in
one, TensorFlow multiplies by oneDNN, in the other by Eigen (`TF_ENABLE_ONEDNN_OPTS`). By
default, TensorFlow uses oneDNN only on processors with AVX-512 VNNI, AVX-VNNI or AMX.

`ONEDNN_MAX_CPU_ISA=AVX2 LARGEOUT_SIMD_LEVEL=avx2` in the environment restricts both to AVX2,
because Eigen's products use kernels of oneDNN too. Eigen's other operations do not change.
"""

import functools
import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.step_case import StepCase, measure_in_turns
from lab.shared.command_line import new_parser
from tf_largeout.ops import class_scan_ops

LIBRARIES = {"oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "1"}, "Eigen": {"TF_ENABLE_ONEDNN_OPTS": "0"}}
SHAPES = [(256, 1024, 128), (512, 4096, 128), (256, 1024, 48)]
NUM_CLASSES = 1_000_000
_SCANNED = 16_384  # classes of the exact scan
_IN_A_CALL = 8  # products of different matrices in a call, so that calls cost little

# Functions of features [B, d], rows [m, d] and gradient of the logits [B, m].
_matmul, _transpose = tf.matmul, tf.transpose
LAYOUTS = {
    "logits: F x W'": lambda f, w, g: _matmul(f, w, transpose_b=True),
    "logits: F x transpose(W)": lambda f, w, g: _matmul(f, _transpose(w)),
    "logits: transpose(W x F')": lambda f, w, g: _transpose(_matmul(w, f, transpose_b=True)),
    "features: G x W": lambda f, w, g: _matmul(g, w),
    "features: transpose(W' x G')": lambda f, w, g: _transpose(
        _matmul(w, g, transpose_a=True, transpose_b=True)
    ),
    "rows: G' x F": lambda f, w, g: _matmul(g, f, transpose_a=True),
    "rows: transpose(G) x F": lambda f, w, g: _matmul(_transpose(g), f),
    "rows: transpose(F' x G)": lambda f, w, g: _transpose(_matmul(f, g, transpose_a=True)),
}


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    products, steps = [], []
    for shape in tqdm(options.shapes, desc="products", unit="shape"):
        products.append({"shape": shape, "gflops": gflops(shape, options.calls)})
        steps.append({"shape": shape, "rows": step_rows(shape, options)})
    report = {"machine": machine.describe(), "products": products, "steps": steps}
    print(products_table(products), steps_table(steps), sep="\n\n")
    if options.json:
        write_json(options.json, report)
    return report


def gflops(shape, calls):
    """Returns the GFLOP per CPU second of each library and layout, as a dict of dicts."""
    measure = functools.partial(_gflops, shape=shape, calls=calls)
    found = own_process.call_in_turns([measure] * len(LIBRARIES), list(LIBRARIES.values()))
    return dict(zip(LIBRARIES, found, strict=True))


def _gflops(turn, shape, calls):
    """Returns the median over the calls; the layouts of a process take turns as well."""
    machine.use("cpu", 1)
    batch, num_rows, dim = shape
    rng = np.random.default_rng(0)
    sizes = [batch, dim], [num_rows, dim], [batch, num_rows]
    arrays = [
        [tf.constant(rng.normal(size=size).astype(np.float32)) for size in sizes]
        for _ in range(_IN_A_CALL)
    ]
    functions = {name: _together(layout) for name, layout in LAYOUTS.items()}
    flops = dict.fromkeys(LAYOUTS, 2 * batch * num_rows * dim * _IN_A_CALL)
    functions["exact scan"], flops["exact scan"] = _exact_scan(batch, dim)
    functions["1,024 x 1,024 x 1,024"], flops["1,024 x 1,024 x 1,024"] = _square(1024)
    seconds = {name: [] for name in functions}
    for _ in range(1 + calls):  # the first call traces
        for name, function in functions.items():
            start = time.process_time()
            function(arrays)
            seconds[name].append(time.process_time() - start)
        turn.pass_on()
    return {name: flops[name] / np.median(times[1:]) / 1e9 for name, times in seconds.items()}


def _exact_scan(batch, dim):
    """Returns a function that computes a log partition, and its number of operations."""
    classes = tf.Variable(tf.random.normal([_SCANNED, dim]))
    features, labels = tf.random.normal([batch, dim]), tf.zeros([batch, 1], tf.int64)
    return (
        lambda _: class_scan_ops.class_statistics(features, classes, None, labels),
        2 * batch * dim * _SCANNED,
    )


def _square(size):
    matrix = tf.random.normal([size, size])
    return lambda _: tf.matmul(matrix, matrix), 2 * size**3


def _together(layout):
    """Returns a compiled function of several triples, which returns one number per product."""
    return tf.function(lambda arrays: [layout(*three)[0, 0] for three in arrays])


def step_rows(shape, options):
    """Returns the rows of `measure_in_turns` of a whole step, one for each library."""
    batch, num_rows, dim = shape
    case = StepCase(
        "ours",
        "lazy_adam",
        options.num_classes,
        dim,
        batch,
        num_rows,
        max_steps=options.steps,
        threads=1,
    )
    rows = measure_in_turns([case] * len(LIBRARIES), 10, list(LIBRARIES.values()))
    return [{"library": name, **row} for name, row in zip(LIBRARIES, rows, strict=True)]


def products_table(products):
    """Returns the GFLOP per CPU second as Markdown, a column per shape and library."""
    columns = [
        (f"{' x '.join(map(str, row['shape']))}, {name}", row["gflops"][name])
        for row in products
        for name in LIBRARIES
    ]
    layouts = columns[0][1]
    rows = [[layout, *(f"{rates[layout]:.0f}" for _, rates in columns)] for layout in layouts]
    return markdown(["GFLOP/s", *(title for title, _ in columns)], rows)


def steps_table(steps):
    """Returns the CPU milliseconds of whole steps as Markdown."""
    rows = []
    for step in steps:
        fast, slow = step["rows"]
        times = fast["cpu_ms"], slow["cpu_ms"], slow["cpu_ratio"]
        rows.append([" x ".join(map(str, step["shape"])), *(f"{time:.2f}" for time in times)])
    return markdown(["CPU ms per step", "oneDNN", "Eigen", "ratio"], rows)


def _shape(text):
    return tuple(int(part) for part in text.split(","))


def _parser():
    parser = new_parser("speed.products", __doc__)
    add = parser.add_argument
    add("--shapes", type=_shape, nargs="+", default=SHAPES, metavar="B,M,DIM")
    add("--calls", type=int, default=30, help="of each layout")
    add("--num-classes", type=int, default=NUM_CLASSES)
    add("--steps", type=int, default=150)
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
