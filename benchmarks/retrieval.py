"""`python -m benchmarks retrieval`: recall of the best classes against time.

Compares the indexes of `tf_largeout.retrieval`, exports, a product with all classes and
`tf.math.top_k`, and installed libraries of nearest-neighbour search (`pip install
'tf_largeout[rivals]'`): one line per setting and batch size. Weights and queries come from a
file, or from a model that is trained first. Everything runs on one thread, each kind of method
in its own process. Other libraries search the rows with the biases as an additional column.

Recall is the share of the exact best k, where classes of equal scores count as equal. `p1` is
P@1 of the classes found. Times include the conversion from and to NumPy arrays. `p50_ms` and
`p99_ms` are wall times of a call, and `cpu_ms` is the mean CPU time per query. Memory is the
growth of the process when the index was built, including its own copy of the rows.
"""

import os
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine, own_process, tasks
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_search
from benchmarks.harness.training import TrainingRun
from benchmarks.methods.models import encoder_of
from benchmarks.methods.retrieval_methods import METHODS, Problem

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_RECALL_BATCH = 64
_WARM_UP = 5


def main(arguments=None):
    """Runs the measurements of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    weights = options.weights or _trained(options)
    for name in _THREADS:
        os.environ[name] = "1"
    rows = []
    for method in options.methods:
        for found in _in_own_process(method, weights, options):
            rows.append({"method": method, **found})
            tqdm.write(_line(rows[-1]))
    with np.load(weights) as file:
        shape = dict(zip(("num_classes", "dim"), file["W"].shape, strict=True))
    report = {"machine": machine.describe(), "task": options.task, **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    if options.png:
        _draw(report, options)
    return report


def measure(method, weights, k, batches, queries, seconds):
    """Returns the figures of each setting of a method, as a list of dicts.

    Args:
        method: key of `METHODS`.
        weights: path of an `.npz` with `W [num_classes, dim]`, `b [num_classes]`, queries
            `H [n, dim]` and optionally their labels `y`, `[n]` or `[n, m]` padded with -1. A
            random half of the queries is searched. The other half may be used to choose
            settings.
        k: how many classes to find, as a list.
        batches: batch sizes, as a list.
        queries: the number of queries from which the recall is computed.
        seconds: about how long each time is measured.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    with np.load(weights) as file:
        # At random, because test examples may come in an order.
        order, half = np.random.default_rng(0).permutation(len(file["H"])), len(file["H"]) // 2
        problem = Problem(file["W"], file["b"], file["H"][order[:half]], max(k))
        asked = file["H"][order[half:]]
        labels = file["y"][order[half:]][:queries] if "y" in file else None
    exact = {one: _exact(problem, asked[:queries], one) for one in k}
    before, start, rows = machine.resident_mb(), _now(), []
    for setting, search in METHODS[method](problem):
        seconds_of_build = np.subtract(_now(), start).tolist()
        build = dict(zip(("build_s", "build_cpu_s"), seconds_of_build, strict=True))
        build["mib"] = machine.resident_mb() - before
        for one in k:
            found = _found(search, asked[:queries], one)
            told = {"recall": _share_found(problem, asked[:queries], exact[one], found)}
            if labels is not None:
                told["p1"] = _precision(found, labels)
            for batch in batches:
                times = _times(search, asked, one, batch, seconds)
                row = {"setting": setting, "k": one, "batch": batch}
                rows.append({**row, **told, **times, **build})
        del search
        start = _now()
    return rows


def _now():
    return time.perf_counter(), time.process_time()


def _in_own_process(method, weights, options):
    """Calls `measure`; if a library is missing, prints a line and returns nothing."""
    arguments = (method, weights, options.k, options.batches, options.queries, options.seconds)
    try:
        return own_process.call(measure, *arguments)
    except (ImportError, RuntimeError) as error:
        tqdm.write(f"{method:34} cannot be measured: {str(error).splitlines()[0]}")
        return []


def _exact(problem, queries, k):
    """Returns the exact best classes, `[n, k]`, in float32."""
    best = []
    for first in range(0, len(queries), _RECALL_BATCH):
        scores = queries[first : first + _RECALL_BATCH] @ problem.rows.T + problem.bias
        some = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
        best.append(np.take_along_axis(some, order, axis=1))
    return np.concatenate(best)


def _found(search, queries, k):
    """Returns the classes that a search finds, `[n, k]`."""
    firsts = range(0, len(queries), _RECALL_BATCH)
    found = [search(queries[first : first + _RECALL_BATCH], k) for first in firsts]
    return np.concatenate(found).astype(np.int64)  # some libraries return uint64


def _share_found(problem, queries, exact, found):
    """Returns the share of `found` that scores at least as high as the exact k-th class."""
    rows = zip(queries, exact, found, strict=True)
    shares = []
    for query, best, other in rows:
        ids = np.concatenate([best, other])
        scores = problem.rows[ids] @ query + problem.bias[ids]
        scores[len(best) :][other < 0] = -np.inf
        lowest = scores[: len(best)].min()
        shares.append((scores[len(best) :] >= lowest - 1e-5 * abs(lowest)).mean())
    return float(np.mean(shares))


def _precision(found, labels):
    """Returns P@1 in per cent: how often the first class is a label."""
    labels = labels.reshape(len(labels), -1)
    return 100.0 * float((found[:, :1] == labels).any(axis=1).mean())


def _times(search, queries, k, batch, seconds):
    """Returns wall and CPU milliseconds, and queries per second; see the module docstring."""
    milliseconds, first, end, cpu = [], 0, None, 0.0
    while end is None or time.perf_counter() < end or len(milliseconds) < _WARM_UP + 10:
        if len(milliseconds) == _WARM_UP:
            end, cpu = time.perf_counter() + seconds, time.process_time()
        part = queries[first : first + batch]
        first = (first + batch) % (len(queries) - batch + 1)
        start = time.perf_counter()
        search(part, k)
        milliseconds.append(1e3 * (time.perf_counter() - start))
    cpu = time.process_time() - cpu
    timed = milliseconds[_WARM_UP:]
    p50, p99 = np.quantile(timed, [0.5, 0.99]).tolist()
    cpu_ms = 1e3 * cpu / (len(timed) * batch)
    return {"p50_ms": p50, "p99_ms": p99, "qps": 1e3 * batch / p50, "cpu_ms": cpu_ms}


def _trained(options):
    """Returns the path of a model's weights and queries. Trains the model if needed."""
    directory = pathlib.Path(options.out)
    path = directory / f"{options.task.replace('/', '-')}.npz"
    if not path.exists():
        of_task = path.with_suffix("")  # each task has a folder, for its log and its model
        run = TrainingRun(
            task=options.task,
            method=options.method_of_training,
            directory=str(of_task),
            seconds=options.training_seconds,
            every=options.training_seconds,
            resumable=False,
            save=str(of_task / f"{options.method_of_training}.keras"),
        )
        of_task.mkdir(parents=True, exist_ok=True)
        run.in_own_process()
        own_process.call(_write_weights, run.save, options.task, str(path))
    return str(path)


def _write_weights(model_path, task_name, path):
    """Writes the class weights of a saved model and its test inputs to the output layer."""
    model = keras.models.load_model(model_path, compile=False)
    layer = model.layers[-1]
    features, labels = tasks.load(task_name, 512).test_sample(8192)
    queries = encoder_of(model).predict(features, batch_size=512, verbose=0).astype(np.float32)
    rows, bias = layer.class_embeddings().numpy(), layer.bias.numpy()
    np.savez(path, W=rows, b=bias, H=queries, y=labels)


def _draw(report, options):
    """Draws recall against queries per second for the first k and batch size, unfiltered."""
    chosen = (options.k[0], options.batches[0])
    rows = [
        {"search": row["method"], "qps": row["qps"], "recall": row["recall"]}
        for row in report["rows"]
        if (row["k"], row["batch"]) == chosen
        and not row["setting"].endswith(("excluded", "allowed"))
    ]
    picture = {"rows": rows, "k": chosen[0], "batch_size": chosen[1]}
    draw_search({**report, **picture}, options.png, of_queries=True)


def _line(row):
    return (
        f"{row['method']:34} {row['setting']:22} k {row['k']:3} batch {row['batch']:2} recall "
        f"{row['recall']:.3f} p50 {row['p50_ms']:8.3f} p99 {row['p99_ms']:8.3f} ms "
        f"{row['qps']:9,.0f}/s, CPU {row['cpu_ms']:.3f} ms per query, "
        f"built in {row['build_s']:6.1f} s, {row['mib']:6,.0f} MiB"
    )


def _parser():
    parser = new_parser("retrieval", __doc__)
    add = parser.add_argument
    add("--task", default="linux_callees", help="what the model is trained on")
    add("--training-seconds", type=float, default=120.0)
    add("--method-of-training", default="ours", help="of `race`")
    add("--out", default="benchmark-results/retrieval", help="directory of the weights")
    add("--weights", help="an .npz with W, b and H instead, see `search`")
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--k", type=int, nargs="+", default=[10, 1, 100], help="the picture is of the first")
    add("--batches", type=int, nargs="+", default=[1, 16, 64])
    add("--queries", type=int, default=2000, help="that tell the recall")
    add("--seconds", type=float, default=1.0, help="of each measurement")
    return parser
