"""`python -m lab.blanc_rendle.draw_cost`: cost of a draw of a kernel tree by number of classes.

Builds trees over random rows without biases, draws classes for random queries, and measures CPU
time. The class of a draw gives its path, so the work follows from the draws. A query visits a
node once, however many of its draws pass through it. The visit of an inner node multiplies the
sums of its children; the visit of a leaf multiplies its class rows. `megabytes` counts the sums
and rows of the visited nodes, once per batch. The program then fits a time per multiplication
and a time per byte to all measurements of a width.

A single query that draws the same classes again finds their nodes in the caches. So the ratio
of its time to that of new queries shows what reading from memory costs.
"""

import collections
import itertools
import time

import numpy as np
import tensorflow as tf

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from lab.shared.command_line import new_parser
from tf_largeout.papers.kernel_tree import kernel_tree_ops
from tf_largeout.papers.kernel_tree.kernel_tree import default_leaf_size

_ALPHA = 100.0
_CHILDREN = 4  # of an inner node
_BLOCK = 2**20  # rows that are drawn at random together
_REPEATS = 3


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), "batch_size": options.batch_size, "rows": []}
    for shape in options.shapes:
        num_classes, dim = map(int, shape.split("x"))
        tree = Tree(num_classes, dim)
        for count in options.num_sampled:
            report["rows"].append(measure(tree, count, options))
            print(_line(report["rows"][-1]), flush=True)
            report["fits"] = fits(report["rows"])
            write_json(options.json or f"{options.out}/draw_cost.json", report)
        del tree  # before the next one needs memory
    print(table(report["rows"]), report["fits"], sep="\n", flush=True)
    return report


class Tree:
    """A kernel tree over random rows."""

    def __init__(self, num_classes, dim):
        self.num_classes, self.dim = num_classes, dim
        self.leaf_size = min(default_leaf_size(dim), num_classes)
        self.shape = kernel_tree_ops.kernel_tree_shape(num_classes, dim, self.leaf_size)
        self.rows = tf.Variable(lambda: tf.zeros([num_classes, dim]), trainable=False)
        for first in range(0, num_classes, _BLOCK):
            block = tf.range(first, min(first + _BLOCK, num_classes))
            values = tf.random.stateless_normal([len(block), dim], [1, first])
            self.rows.scatter_update(tf.IndexedSlices(values, block))
        self.sums = tf.Variable(lambda: tf.zeros(self.shape), trainable=False)
        kernel_tree_ops.kernel_tree_build(self.rows, None, self.sums, self.leaf_size)

    def draw(self, queries, seed, num_sampled):
        """Returns classes `[batch, num_sampled]` for queries `[batch, dim]`."""
        labels = tf.zeros([tf.shape(queries)[0], 0], tf.int64)
        tree = self.rows, None, self.sums, self.leaf_size
        return kernel_tree_ops.kernel_tree_sample(
            queries, labels, seed, *tree, num_sampled, _ALPHA
        )[0]


def measure(tree, num_sampled, options):
    """Returns the time and the work of draws, and the time of one query alone, as a dict."""
    milliseconds, ids = cost(tree, options.batch_size, num_sampled, options.draws)
    alone, _ = cost(tree, 1, num_sampled, options.draws)
    again, _ = cost(tree, 1, num_sampled, options.draws, again=True)
    works = [work(drawn, tree.num_classes, tree.leaf_size, tree.dim) for drawn in ids]
    return {
        "num_classes": tree.num_classes,
        "dim": tree.dim,
        "leaf_size": tree.leaf_size,
        "num_sampled": num_sampled,
        "cpu_ms": milliseconds,
        **{name: float(np.mean([each[name] for each in works])) for name in works[0]},
        "tree_megabytes": 4e-6 * (np.prod(tree.shape) + tree.num_classes * tree.dim),
        "alone_cpu_ms": alone,
        "again_cpu_ms": again,
    }


def cost(tree, batch, num_sampled, draws, again=False):
    """Returns the CPU milliseconds of a batch of draws, and the classes of each batch.

    Args:
        tree: a `Tree`.
        batch: queries of a batch.
        num_sampled: draws per query.
        draws: how many draws to make in all; at least three batches.
        again: whether all batches have the same queries and draws.
    """
    calls = max(3, draws // (batch * num_sampled))
    shape = [1 if again else calls, batch, tree.dim]
    all_queries = tf.random.stateless_normal(shape, [2, batch])

    @tf.function
    def draw_all(first):
        drawn = tf.TensorArray(tf.int64, calls, element_shape=[batch, num_sampled])
        for call in tf.range(calls):
            of_call = tf.constant(0) if again else call
            seed = tf.stack([first, tf.cast(of_call, tf.int64)])
            queries = tf.ensure_shape(all_queries[of_call], shape[1:])
            drawn = drawn.write(call, tree.draw(queries, seed, num_sampled))
        return drawn.stack()

    draw_all(tf.constant(-1, tf.int64))
    seconds = []
    for repeat in range(_REPEATS):
        started = time.process_time()
        ids = draw_all(tf.constant(0 if again else repeat, tf.int64))
        seconds.append(time.process_time() - started)
    return 1e3 * float(np.median(seconds)) / calls, ids.numpy()


def work(ids, num_classes, leaf_size, dim):
    """Returns the work to draw classes, as a dict.

    Args:
        ids: `[batch, num_sampled]`, the drawn classes.
        num_classes: of the tree.
        leaf_size: classes of a leaf.
        dim: width of the rows.

    Returns:
        `visits`, pairs of a query and a node; `multiplications`; and `megabytes`, the size of
        what the visits read if each number is read once.
    """
    num_nodes = -(-num_classes // leaf_size)
    _, width = kernel_tree_ops.kernel_tree_shape(num_classes, dim, leaf_size)
    total = collections.Counter()

    def visit(nodes, row_size, numbers_of):
        by_query = [np.unique(row) for row in nodes]
        pairs, distinct = np.concatenate(by_query), np.unique(nodes)
        total["visits"] += len(pairs)
        total["multiplications"] += row_size * int(numbers_of(pairs).sum())
        total["megabytes"] += 4e-6 * row_size * int(numbers_of(distinct).sum())

    nodes = ids // leaf_size
    visit(nodes, dim, lambda leaves: np.minimum(leaf_size, num_classes - leaves * leaf_size))
    while num_nodes > 1:
        nodes, below = nodes // _CHILDREN, num_nodes
        visit(nodes, width, lambda of: np.minimum(_CHILDREN, below - of * _CHILDREN))  # noqa: B023
        num_nodes = -(-num_nodes // _CHILDREN)
    return dict(total)


def fits(rows):
    """Returns for each width the times of the work that fit the relative times best.

    Returns:
        A list of dicts: `dim`; `ns_per_multiplication`; `ns_per_byte`; and `largest_error`, the
        largest relative error of a time.
    """
    found = []
    for dim, group in itertools.groupby(rows, lambda row: row["dim"]):
        own = list(group)
        times = np.array([row["cpu_ms"] for row in own])
        works = np.array([[row["multiplications"], row["megabytes"]] for row in own])
        relative = works / times[:, np.newaxis]
        factors = np.linalg.lstsq(relative, np.ones(len(own)), rcond=None)[0]
        errors = np.abs(relative @ factors - 1)
        of_product, of_byte = 1e6 * float(factors[0]), float(factors[1])
        found.append(
            {
                "dim": dim,
                "ns_per_multiplication": of_product,
                "ns_per_byte": of_byte,
                "largest_error": float(errors.max()),
            }
        )
    return found


def table(rows):
    """Returns the rows of a report as Markdown."""
    head = ["width", "classes", "draws", "CPU ms", "visits", "million products", "MB"]
    head += ["tree MB", "alone", "again"]
    lines = []
    for row in rows:
        numbers = [row["cpu_ms"], row["visits"], row["multiplications"] / 1e6]
        numbers += [row[name] for name in ("megabytes", "tree_megabytes")]
        numbers += [row["alone_cpu_ms"], row["again_cpu_ms"]]
        names = [f"{row[name]:,}" for name in ("dim", "num_classes", "num_sampled")]
        lines.append([*names, *(f"{number:,.3g}" for number in numbers)])
    return markdown(head, lines)


def _line(row):
    return (
        f"{row['num_classes']:>10,} x {row['dim']}, {row['num_sampled']:>3} draws: "
        f"{row['cpu_ms']:.2f} ms, {row['multiplications'] / 1e6:.0f} million, "
        f"{row['megabytes']:.1f} MB, alone {row['alone_cpu_ms']:.3f} ms, again "
        f"{row['again_cpu_ms']:.3f} ms"
    )


def _parser():
    parser = new_parser("blanc_rendle.draw_cost", __doc__)
    add = parser.add_argument
    small = [f"{10**digits}x32" for digits in (4, 5, 6, 7)]
    large = [f"{10**digits}x128" for digits in (4, 5, 6)]
    add("--shapes", nargs="+", default=[*small, *large], help="CLASSESxWIDTH")
    add("--num-sampled", type=int, nargs="+", default=[1, 8, 32, 128], help="draws per query")
    add("--batch-size", type=int, default=256, help="queries of a batch")
    add("--draws", type=int, default=8192, help="per measurement; at least three batches")
    add("--out", default="benchmark-results/blanc_rendle", help="directory of the figures")
    add("--json", help="file for the report")
    return parser


if __name__ == "__main__":
    main()
