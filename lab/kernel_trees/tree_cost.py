"""`python -m lab.kernel_trees.tree_cost`: time to sample from a kernel tree and to update it.

Measures the time to sample for a batch, and the time to update the tree for rows that have
changed: the rows that the batch drew, and as many rows as a shared pool of 1,024 and the labels
have. Prints one line for each number of classes, of samples and of dimensions of the kernel,
and then the time that other samplers take. Embeddings and features are random.
"""

import itertools

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser
from lab.shared.samplers import SAMPLERS
from tf_largeout import layers, samplers
from tf_largeout.variables import replicas

_WARM_UP = 2
_POOL = 1024
# Samplers that do not need counts from a data set.
_WITHOUT_COUNTS = sorted(SAMPLERS.keys() - {"frequency", "bernoulli", "bigram"})


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    rows, others = [], []
    for num_classes, num_sampled in itertools.product(options.num_classes, options.num_sampled):
        shape = {"num_classes": num_classes, "dim": options.dim, "num_sampled": num_sampled}
        for projection_dim in options.projection_dims:
            row = {**shape, "projection_dim": projection_dim}
            rows.append({**row, **measure(**row, options=options)})
            tqdm.write(_line(rows[-1]))
        for name in options.other_samplers:
            others.append({**shape, "sampler": name, **measure_other(name, shape, options)})
            tqdm.write(_line_of_other(others[-1]))
    report = {"machine": machine.describe(), "batch_size": options.batch_size}
    report |= {"rows": rows, "other_samplers": others}
    if options.json:
        write_json(options.json, report)
    return report


def measure(num_classes, dim, projection_dim, num_sampled, options):
    """Returns the milliseconds of a build, a sample and two updates, and MB of sums, as a dict.

    Args:
        num_classes: Number of classes.
        dim: Width of their embeddings.
        projection_dim: Of the kernel, or 0 for no projection.
        num_sampled: Draws per example.
        options: `batch_size` and `steps`.
    """
    sampler = samplers.KernelTreeSampler(
        num_sampled, projection_dim=projection_dim or None, shared=False, seed=1
    )
    layer, sample = _layer_and_sample(sampler, num_classes, dim, options.batch_size)
    ids = np.random.default_rng(1).integers(num_classes, size=_POOL + options.batch_size)
    keep_up = tf.function(lambda: sampler.prepare(layer))
    keep_up()
    drawn = sample().sampled_candidates

    def update(ids):
        with replicas.notify_observers(
            layer.embeddings, layer.embeddings.value, tf.reshape(ids, [-1])
        ):
            pass  # as an optimizer would change these rows
        return _milliseconds(keep_up, 1)

    updates_of_draws = [update(drawn) for _ in range(options.steps)]
    updates_of_pool = [update(tf.constant(ids)) for _ in range(options.steps)]
    return {
        "build_ms": _milliseconds(lambda: sampler.rebuild(layer), 2),
        "sample_ms": _milliseconds(sample, options.steps + _WARM_UP),
        "update_ms": float(np.median(updates_of_draws)),
        "pool_update_ms": float(np.median(updates_of_pool)),
        "sums_mb": sampler.health(layer)["megabytes"],
    }


def measure_other(name, shape, options):
    """Returns the milliseconds that a sampler of `SAMPLERS` takes to sample, as a dict."""
    sampler = SAMPLERS[name](None, shape["num_sampled"])
    layer, sample = _layer_and_sample(
        sampler, shape["num_classes"], shape["dim"], options.batch_size
    )
    if hasattr(sampler, "rebuild"):
        sampler.rebuild(layer)
    return {"sample_ms": _milliseconds(sample, options.steps + _WARM_UP)}


def _layer_and_sample(sampler, num_classes, dim, batch_size):
    """Returns a layer of random embeddings, and a function that draws for random features."""
    layer = layers.LargeOutput(num_classes, sampler=sampler)
    layer.build((None, dim))
    random = np.random.default_rng(0)
    features = random.normal(size=[batch_size, dim]).astype(np.float32)
    labels = random.integers(num_classes, size=[batch_size, 1])
    return layer, tf.function(
        lambda: sampler.draw(tf.constant(features), tf.constant(labels), layer)
    )


def _milliseconds(function, times):
    """Returns the median milliseconds of a call, without the first calls if there are many."""
    seconds = machine.seconds_of_calls(function, times)
    return 1e3 * float(np.median(seconds[_WARM_UP:] or seconds[-1:]))


def _line(row):
    kernel_dim = row["projection_dim"] or row["dim"]
    return (
        f"{row['num_classes']:>9,} classes, kernel of {kernel_dim:>3}, "
        f"{row['num_sampled']:>4} samples: sample {row['sample_ms']:7.1f} ms, update "
        f"{row['update_ms']:7.1f} ms, of a pool {row['pool_update_ms']:7.1f} ms, build "
        f"{row['build_ms']:7.1f} ms, {row['sums_mb']:6.1f} MB"
    )


def _line_of_other(row):
    return (
        f"{row['num_classes']:>9,} classes, {row['num_sampled']:>4} samples: "
        f"{row['sampler']} {row['sample_ms']:7.1f} ms"
    )


def _parser():
    parser = new_parser("kernel_trees.tree_cost", __doc__)
    parser.add_argument(
        "--num-classes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument(
        "--projection-dims", type=int, nargs="+", default=[0, 16, 32, 48], help="0: none"
    )
    parser.add_argument("--num-sampled", type=int, nargs="+", default=[32, 128])
    parser.add_argument(
        "--other-samplers",
        nargs="+",
        choices=_WITHOUT_COUNTS,
        default=["uniform", "inverted_file_draws", "softmax"],
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", help="file for the report")
    return parser


if __name__ == "__main__":
    main()
