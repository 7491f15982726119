"""`python -m lab.vijayanarasimhan.inference`: precision and time of WTA inference.

Trains a softmax with uniform negatives, and searches its class rows one query at a time with
WTA hashes of 16 coordinates, 3 per table, and several numbers of tables, as in section 4 of
Vijayanarasimhan et al. 2015. The K classes that share most buckets with a query are scored.
"all entries" counts the classes in all buckets of a query, as in the paper. "core operations"
does the same without the operations of this library, as an export with `ops="core"` would have
to. The other lines read at most 8 entries per candidate, but at least 8 per table, as
`LSHIndex` does.

`recall` is the share of the exact best 10 that is found, and `p1` is P@1 of the classes found.
Everything runs on one thread.
"""

import os
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.tasks import TASKS
from lab.shared import threads
from lab.shared.command_line import new_parser
from lab.vijayanarasimhan.plots import draw_inference
from lab.vijayanarasimhan.training import trained
from tf_largeout.retrieval import BruteForceIndex, LSHIndex

_K = 10
_WARM_UP = 5
_MOST_CORE_TABLES = 200  # because they are copied


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    weights = f"{options.out}/{options.task}.npz"
    if not os.path.exists(weights):
        os.makedirs(options.out, exist_ok=True)
        own_process.call(write_weights, options.task, options.seconds, weights)
    with np.load(weights) as file:
        num_classes, dim = file["W"].shape
    rows = own_process.call(measure_exact, weights, options.queries)
    for tables in options.tables:
        rows += own_process.call(measure, weights, tables, options.candidates, options.queries)
        _write(rows, options, num_classes, dim)
    print(table(rows), flush=True)
    return _write(rows, options, num_classes, dim)


def write_weights(task_name, seconds, path):
    """Trains a model and writes its class weights and the features of test examples."""
    model, task, _ = trained(task_name, "uniform", seed=0, seconds=seconds)
    layer = model.layers[-1]
    encoder = keras.Model(model.inputs, layer.input)
    features, labels = task.test_sample(4096)
    queries = encoder.predict(features, batch_size=512, verbose=0)
    rows, bias = layer.class_embeddings().numpy(), layer.bias.numpy()
    np.savez(path, W=rows, b=bias, H=queries, y=labels)


def measure_exact(weights, queries):
    """Returns the figures of the searches that score all classes, as a list of dicts."""
    problem = _Problem(weights, queries)
    rows, bias = tf.Variable(problem.rows), tf.Variable(problem.bias)

    @tf.function(input_signature=[tf.TensorSpec([None, problem.rows.shape[1]])])
    def product(queries):
        return tf.math.top_k(tf.matmul(queries, rows, transpose_b=True) + bias, _K)[1]

    index = BruteForceIndex().build(problem.rows, problem.bias)
    searches = {
        "tf.matmul + tf.math.top_k": lambda query: product(tf.constant(query)),
        "BruteForceIndex": lambda query: index.top_k(query, _K)[1],
    }
    return [{"search": name, **problem.figures(search)} for name, search in searches.items()]


def measure(weights, num_tables, candidates, queries):
    """Returns the figures of WTA hashing, as a list of dicts.

    Args:
        weights: Path that `write_weights` wrote.
        num_tables: M, the number of bands.
        candidates: Values of K, the number of classes that are scored.
        queries: Number of queries.
    """
    problem, found = _Problem(weights, queries), []
    start = time.process_time()
    index = LSHIndex(
        max(candidates), hash="wta", num_tables=num_tables, num_hashes=3, bin_size=16
    ).build(problem.rows, problem.bias)
    build = {"build_cpu_s": time.process_time() - start}
    rows, tables = index._built().rows, index._built().tables
    sizes = tables.bucket_sizes()
    build["entries_per_query"] = float((sizes**2).sum(axis=1).mean() / len(problem.rows))
    build["entries_per_query"] *= num_tables
    for num_candidates in candidates:
        lookups = {"all entries": num_tables * len(problem.rows), "default": 8 * num_candidates}
        searches = {
            name: _searching(rows, tables, num_candidates, most)
            for name, most in lookups.items()
        }
        are_mixed = sizes.shape[1] < tables.bin_size**tables.num_hashes
        if num_tables <= _MOST_CORE_TABLES and not are_mixed:
            searches["core operations"] = core_search(problem, tables, num_candidates)
        for name, search in searches.items():
            row = {"search": f"WTA, {name}", "tables": num_tables, "candidates": num_candidates}
            found.append({**row, **problem.figures(search), **build})
    return found


def _searching(rows, tables, num_candidates, max_lookups):
    from tf_largeout.papers.lsh.lsh_index import HashedRows

    search = HashedRows(rows, tables, num_candidates, max_lookups)

    @tf.function(input_signature=[tf.TensorSpec([None, rows.matrix.dim])], autograph=False)
    def best(queries):
        return search.top_k(queries, _K)[1]

    return lambda query: best(tf.constant(query))


def core_search(problem, tables, num_candidates):
    """Returns the search "all entries", in core operations of TensorFlow, for one query.

    Args:
        problem: Its `rows`, `[n, dim]`, and `bias` are scored.
        tables: `HashTables` of these rows, with WTA hashes whose values are not mixed.
        num_candidates: K.
    """
    rows, bias, arrays = tf.constant(problem.rows), tf.constant(problem.bias), tables.arrays()
    shape = [tables.num_hashes, tables.num_tables, tables.bin_size]
    coordinates = tf.constant(arrays["hash_functions"].reshape(shape))
    offsets = tf.constant(arrays["table_offsets"].astype("int32"))
    ids = tf.constant(arrays["table_ids"].astype("int32").reshape(-1))
    place_values = tables.bin_size ** tf.range(tables.num_hashes - 1, -1, -1)[:, tf.newaxis]
    first = tf.range(tables.num_tables) * len(problem.rows)

    @tf.function(input_signature=[tf.TensorSpec([1, problem.rows.shape[1]])], autograph=False)
    def best(query):
        values = tf.argmax(tf.gather(query[0], coordinates), axis=-1, output_type=tf.int32)
        codes = tf.reduce_sum(values * place_values, axis=0)
        begins = first + tf.gather(offsets, codes, batch_dims=1)
        ends = first + tf.gather(offsets, codes + 1, batch_dims=1)
        entries = tf.gather(ids, tf.ragged.range(begins, ends).flat_values)
        counts = tf.math.bincount(entries, minlength=len(problem.rows))
        counts, found = tf.math.top_k(counts, num_candidates)
        scores = tf.linalg.matvec(tf.gather(rows, found), query[0]) + tf.gather(bias, found)
        scores = tf.where(counts > 0, scores, scores.dtype.min)
        return tf.gather(found, tf.math.top_k(scores, _K)[1])[tf.newaxis]

    return lambda query: best(tf.constant(query))


class _Problem:
    """The class rows, some queries, and the exact best classes.

    Args:
        weights: Path that `write_weights` wrote.
        num_queries: Number of queries.
    """

    def __init__(self, weights, num_queries):
        threads.use_one()
        with np.load(weights) as file:
            self.rows, self.bias = file["W"], file["b"]
            order = np.random.default_rng(0).permutation(len(file["H"]))[:num_queries]
            self.queries, self.labels = file["H"][order], file["y"][order]
        self.exact = [
            np.argpartition(-(self.rows @ query + self.bias), _K)[:_K] for query in self.queries
        ]

    def figures(self, search):
        """Returns recall, P@1, and milliseconds per query of a search, one query at a time."""
        for query in self.queries[:_WARM_UP]:
            search(query[np.newaxis])
        found, wall, cpu = [], [], time.process_time()
        for query in self.queries:
            start = time.perf_counter()
            found.append(np.asarray(search(query[np.newaxis]))[0])
            wall.append(1e3 * (time.perf_counter() - start))
        cpu = 1e3 * (time.process_time() - cpu) / len(wall)
        shares = [np.isin(e, f).mean() for e, f in zip(self.exact, found, strict=True)]
        labels = self.labels.reshape(len(found), -1)
        hits = [
            np.isin(best[0], own[own >= 0]) for best, own in zip(found, labels, strict=True)
        ]
        return {
            "recall": float(np.mean(shares)),
            "p1": 100 * float(np.mean(hits)),
            "cpu_ms": cpu,
            "p50_ms": float(np.median(wall)),
        }


def table(rows):
    """Returns the figures as Markdown, one line per search."""
    lines = []
    for row in rows:
        counts = [f"{row[name]:,}" if name in row else "" for name in ("tables", "candidates")]
        figures = [f"{row['cpu_ms']:.2f}", f"{row['recall']:.3f}", f"{row['p1']:.1f}"]
        lines.append([row["search"], *counts, *figures])
    head = ["search", "tables M", "candidates K", "CPU ms per query", "recall of 10", "P@1"]
    return markdown(head, lines)


def _write(rows, options, num_classes, dim):
    shape = {"task": options.task, "num_classes": num_classes, "dim": dim}
    shape["seconds_of_training"] = options.seconds
    report = {"machine": machine.describe(), **shape, "rows": rows}
    write_json(options.json or f"{options.out}/inference.json", report)
    draw_inference(report, options.png or f"{options.out}/inference.png")
    return report


def _parser():
    parser = new_parser("vijayanarasimhan.inference", __doc__)
    add = parser.add_argument
    add("--task", choices=TASKS, default="place_names")
    add("--seconds", type=float, default=30.0, help="CPU time of the training")
    add("--tables", nargs="+", type=int, default=[10, 50, 200, 1000], help="M")
    add("--candidates", nargs="+", type=int, default=[1024, 8192], help="K")
    add("--queries", type=int, default=200)
    add("--out", default="benchmark-results/vijayanarasimhan", help="directory of the figures")
    add("--json", help="file for the figures")
    add("--png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
