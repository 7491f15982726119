"""`python -m benchmarks step`: time and memory of a training step.

Measures milliseconds per step and peak memory by number of classes, width, batch size, number
of negatives and optimizer. Each configuration runs in its own process, inside plain `fit`. The
figures are medians over steps after a warm-up. Lines without an optimizer measure only the
forward and the backward pass. `limit` is the least possible time on the machine if a batch
shares its negatives: the time of the matrix products at the measured rate, plus the time to
move the bytes at the measured bandwidth. With `--device gpu`, everything runs on the first GPU,
and the memory of its tensors is reported.

On a busy machine, let the variants of a shape take turns (`--turns 10`: ten steps each). Then
each line also shows its wall and CPU time, divided by those of the first variant.

PyTorch and JAX need the extra `rivals` (`pip install 'tf_largeout[rivals]'`). Their loop is
written by hand, with batches in memory; ours is Keras's `fit`.
"""

import argparse

from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_step
from benchmarks.harness.step_case import StepCase, measure_in_turns
from benchmarks.methods.optimizers import ROW_PASSES

VARIANTS = {
    "ours": ("ours", "lazy_adam"),
    "ours, row momentum": ("ours", "lazy_adam_row_momentum"),
    "ours, no optimizer": ("ours", "none"),
    "ours, LazyAdagrad": ("ours", "lazy_adagrad"),
    "ours, RowwiseAdagrad": ("ours", "rowwise_adagrad"),
    "ours, LazySGD": ("ours", "lazy_sgd"),
    "tf.nn + Keras Adam": ("tf_nn_sampled_softmax", "adam"),
    "tf.nn + LazyAdam": ("tf_nn_sampled_softmax", "lazy_adam"),
    "tf.nn + row-sparse Adam by hand": ("tf_nn_sampled_softmax", "row_sparse_adam"),
    "tf.nn, no optimizer": ("tf_nn_sampled_softmax", "none"),
}
# Measured only on request: bfloat16 products, for whose rate there is no `limit`; passes over
# all classes; and searches, from the first step on.
OTHER_VARIANTS = {
    "ours, bfloat16": ("ours_bfloat16", "lazy_adam"),
    "Keras Dense + Adam": ("dense", "adam"),
    "exact softmax": ("softmax", "lazy_adam"),
    "TopK softmax": ("top_k", "lazy_adam"),
    "LSH embedding": ("lsh_embedding", "lazy_adam"),
    "LSH label": ("lsh_label", "lazy_adam"),
    "LSH, one pool per batch": ("lsh_pool", "lazy_adam"),
    "WTA softmax": ("wta", "lazy_adam"),
    "own hard, LSH": ("lsh_head", "lazy_adam"),
    "own hard, inverted file": ("inverted_file", "lazy_adam"),
    "own hard, exact": ("top_k_head", "lazy_adam"),
}
# The same on request in other libraries, by the modules of `other_libraries`.
RIVAL_VARIANTS = {
    "PyTorch, sampled softmax + SparseAdam": ("torch_sampled_softmax", "SparseAdam"),
    "PyTorch, exact softmax + fused Adam": ("torch_softmax", "fused Adam"),
    "PyTorch, exact in chunks + fused Adam": ("torch_softmax_in_chunks", "fused Adam"),
    "JAX, sampled softmax + row-sparse Adam": ("jax_sampled_softmax", "row-sparse Adam"),
}
ALL_VARIANTS = {**VARIANTS, **OTHER_VARIANTS, **RIVAL_VARIANTS}
BASE = {"num_classes": 1_000_000, "dim": 128, "batch_size": 256, "num_sampled": 1024}
SWEEPS = {
    "num_classes": [10_000, 100_000, 1_000_000],
    "dim": [32, 128, 512],
    "batch_size": [64, 256, 1024],
    "num_sampled": [256, 1024, 8192],
}


def main(arguments=None):
    """Measures the configurations of the command line and returns the report."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        machine.use(options.device, options.threads)
    except RuntimeError as error:
        parser.error(str(error))
    shapes = list(_shapes(options))
    rows = []
    limits = machine.limits()
    with tqdm(total=len(shapes) * len(options.variants), desc="step", unit="case") as progress:
        for shape in shapes:
            for row in _rows(shape, options, limits):
                rows.append(row)
                progress.write(_line(row))
                progress.update()
    report = {"machine": machine.describe(), "limits": limits, "rows": rows}
    if options.json:
        write_json(options.json, report)
    if options.png:
        draw_step(report, options.png)
    return report


def limit_ms(case, limits):
    """Returns the least time of a step: its products and bytes at the machine's rates.

    A row is read for the logits, and its gradient is written and read. The optimizer reads and
    writes weight and slots: with Adam, 9 passes in all. A logit is written, and the softmax and
    its gradient read and write it twice more: 5 passes.
    """
    products = 3 * 2 * case.batch_size * case.num_sampled * case.dim
    passes = 3 + ROW_PASSES[case.optimizer]
    row_bytes = passes * 4 * case.dim * (case.batch_size + case.num_sampled)
    logit_bytes = 5 * 4 * case.batch_size * case.num_sampled
    seconds = products / (limits["gflops"] * 1e9)
    return 1e3 * (seconds + (row_bytes + logit_bytes) / (limits["gb_per_s"] * 1e9))


def _shapes(options):
    """Yields each shape once; the base shape is on every sweep."""
    base = {**BASE, **{name: values[0] for name, values in options.base}}
    seen = []
    for name, values in options.sweep or SWEEPS.items():
        for value in values:
            shape = {**base, name: value}
            if shape not in seen:
                yield shape
            seen.append(shape)


def _rows(shape, options, limits):
    """Yields the row of each variant on a shape."""
    run = {
        "max_steps": options.steps,
        "max_seconds": options.seconds,
        "device": options.device,
        "threads": options.threads,
    }
    cases = [StepCase(*ALL_VARIANTS[label], **shape, **run) for label in options.variants]
    if options.turns:
        measured = measure_in_turns(cases, options.turns)
    else:
        measured = (case.measure() for case in cases)
    for label, case, row in zip(options.variants, cases, measured, strict=True):
        limit = limit_ms(case, limits) if label in VARIANTS else None
        yield {"variant": label, **row, "limit_ms": limit}


def _line(row):
    shape = " ".join(f"{name} {row[name]:,}" for name in BASE)
    if "error" in row:
        return f"{row['variant']:37} {shape}: {row['error']}"
    limit = f" (limit {row['limit_ms']:.2f})" if row["limit_ms"] else ""
    times = f"{row['ms']:8.2f} ms{limit}, CPU {row['cpu_ms']:.2f} ms"
    if "ratio" in row:
        times += f", {row['ratio']:.2f} and CPU {row['cpu_ratio']:.2f} times the first"
    memory = f"peak {row['peak_mb']:,.0f} MiB, of which a step {row['step_mb']:,.0f} MiB"
    return f"{row['variant']:37} {shape}: {times}, {memory}"


def _assignment(text):
    name, _, values = text.partition("=")
    if name not in BASE or not values:
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE,... with NAME among {', '.join(BASE)}; got {text!r}"
        )
    return name, [int(value) for value in values.split(",")]


def _positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0; got {text!r}")
    return int(text)


def _parser():
    parser = new_parser("step", __doc__)
    parser.add_argument("--sweep", type=_assignment, action="append", metavar="NAME=V,...")
    parser.add_argument(
        "--base", type=_assignment, action="append", default=[], metavar="NAME=V"
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=ALL_VARIANTS,
        default=list(VARIANTS),
        help="by default those whose batch shares its negatives",
    )
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--threads", type=_positive, help="and cores; by default all")
    parser.add_argument(
        "--turns",
        type=_positive,
        metavar="STEPS",
        help="variants of a shape take turns of so many steps; by default one follows another",
    )
    parser.add_argument("--steps", type=int, default=60, help="measured steps at most")
    parser.add_argument("--seconds", type=float, default=15.0, help="measured time at most")
    return parser
