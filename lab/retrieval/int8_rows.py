"""`python -m lab.retrieval.int8_rows`: what 8-bit class rows cost and save.

Trains one model per task. Then builds a `BruteForceIndex` of its class rows in float32, with an
8-bit copy, and with `embeddings_dtype="int8"`. Reports the share of the best classes of the
float32 rows that the 8-bit rows find, the errors of rows and logits, P@1, sizes in memory and
files, and CPU milliseconds per call, for queries from the test split. Each task has its own
process.
"""

import tempfile
import time

import keras
import numpy as np

from benchmarks.harness import machine, own_process, tasks
from benchmarks.harness.files import markdown
from lab.shared.command_line import new_parser
from lab.shared.kept_runs import KeptRuns
from tf_largeout import layers, losses, optimizers, retrieval, samplers

# task -> sampler
TASKS = {
    "place_names": samplers.UniformSampler,
    "linux_callees": samplers.LogUniformSampler,
}
_BATCH, _SAMPLED, _KS, _BATCHES = 512, 1024, (1, 10, 100), (1, 64)
KINDS = {
    "float32": {"packed": False},
    "float32 with 8-bit copy": {},
    "int8": {"embeddings_dtype": "int8"},
}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    about = {name: getattr(options, name) for name in ("steps", "dim", "num_queries")}
    file = options.json or f"{options.out}/int8_rows.json"
    kept = KeptRuns(options.out, file, _line, **about)
    for task in options.tasks:
        kept.add([task], {"task": task}, measure, task, options)
    print(table(kept.runs))
    return kept.report


def measure(task, options):
    """The figures of the rows of one trained model."""
    rows, bias, queries, labels = trained(task, options)
    found, indexes = {}, {}
    for name, arguments in KINDS.items():
        indexes[name] = retrieval.BruteForceIndex(**arguments).build(rows, bias)
        found[name] = {
            "file_mb": _file_mb(indexes[name]),
            "resident_mb": own_process.call(resident_mb, name, rows.shape),
            "p1": _p1(indexes[name], queries, labels),
            **{f"ms_{batch}": _ms(indexes[name], queries, batch) for batch in _BATCHES},
        }
    best, other = indexes["float32"], indexes["int8"]
    recall = {str(k): _recall(best, other, queries, k) for k in _KS}
    return {
        "num_classes": len(rows),
        "recall": recall,
        **_errors(rows, bias, queries, other),
        "indexes": found,
    }


def resident_mb(name, shape):
    """MiB that a process grows by when it builds an index of random rows and searches it."""

    def build(rows):
        index = retrieval.BruteForceIndex(**KINDS[name]).build(rows, rows[:, 0])
        index.top_k(rows[:1], 10)
        return index

    rows = np.random.default_rng(0).standard_normal(shape, np.float32)
    indexes = [build(rows[:1000])]
    before = machine.resident_mb()
    indexes.append(build(rows))
    return machine.resident_mb() - before


def trained(task, options):
    """Rows, biases, and the queries and labels of test examples."""
    keras.utils.set_random_seed(0)
    problem = tasks.load(task, _BATCH)
    encoder = problem.encoder(options.dim)
    head = layers.LargeOutput(problem.num_classes, TASKS[task](_SAMPLED, seed=0))
    model = keras.Sequential([problem.input(), encoder, head])
    rate = keras.optimizers.schedules.PolynomialDecay(1e-2, options.steps, 0.0)
    model.compile(
        optimizers.LazyAdam(rate),
        losses.SampledSoftmaxLoss(),
        steps_per_execution=min(16, options.steps),
    )
    model.fit(problem.train, steps_per_epoch=options.steps, verbose=0)
    x, labels = problem.test_sample(options.num_queries)
    queries = np.asarray(encoder(x), np.float32)
    return head.class_embeddings().numpy(), head.bias.numpy(), queries, labels


def _file_mb(index):
    with tempfile.NamedTemporaryFile() as file:
        index.save(file.name)
        with open(file.name, "rb") as saved:
            return saved.seek(0, 2) / 2**20


def _best(index, queries, k):
    blocks = range(0, len(queries), 256)
    return np.concatenate([index.top_k(queries[i : i + 256], k)[1].numpy() for i in blocks])


def _p1(index, queries, labels):
    first = _best(index, queries, 1)
    labels = labels if labels.ndim == 2 else labels[:, np.newaxis]
    return 100 * float((first == labels).any(axis=1).mean())


def _recall(index, other, queries, k):
    """The share of the best `k` classes that the other index finds too."""
    both = zip(_best(index, queries, k), _best(other, queries, k), strict=True)
    return float(np.mean([len(np.intersect1d(*pair)) / k for pair in both]))


def _errors(rows, bias, queries, index, count=100):
    """Errors of rows relative to their lengths, and of logits relative to their deviation."""
    rounded = index.reconstruct(np.arange(len(rows)))
    of_rows = np.linalg.norm(rows - rounded, axis=1) / np.linalg.norm(rows, axis=1)
    logits = queries[:count] @ rows.T
    of_logits = queries[:count] @ rounded.T - logits
    deviation = (logits + bias).std(axis=1, keepdims=True)
    relative = of_logits / deviation
    return {
        "row_error": float(of_rows.mean()),
        "logit_error": float(np.sqrt(np.mean(relative**2))),
        "logit_error_most": float(np.abs(relative).max()),
    }


def _ms(index, queries, batch, calls=15):
    """Median CPU milliseconds of a call, of all threads."""
    index.top_k(queries[:batch], 10)
    times = []
    for call in range(calls):
        start = time.process_time()
        index.top_k(queries[call * batch : (call + 1) * batch], 10)[1].numpy()
        times.append(time.process_time() - start)
    return 1e3 * float(np.median(times))


def table(runs):
    """The figures as Markdown, one line per task and index."""
    lines = []
    for run in runs:
        for name, one in run["indexes"].items():
            recalls = [f"{one:.3f}" for one in run["recall"].values()]
            lines.append(
                [
                    f"`{run['task']}`, {name}",
                    *(recalls if name == "int8" else ["1.000"] * len(recalls)),
                    f"{one['p1']:.2f}",
                    f"{one['file_mb']:.0f}",
                    f"{one['resident_mb']:.0f}",
                    *(f"{one[f'ms_{batch}']:.1f}" for batch in _BATCHES),
                ]
            )
    head = ["rows", *(f"best {k}" for k in _KS), "P@1", "file, MiB", "memory, MiB"]
    return markdown([*head, *(f"CPU ms, {batch}" for batch in _BATCHES)], lines)


def _line(run):
    return f"recall {run['recall']}, error of logits {run['logit_error']:.4f}"


def _parser():
    parser = new_parser("retrieval.int8_rows", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    add("--steps", type=int, default=1500)
    add("--dim", type=int, default=128)
    add("--num-queries", type=int, default=2000)
    add("--out", default="benchmark-results/int8_rows", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
