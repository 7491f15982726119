"""`python -m benchmarks search`: recall of the exact top k against time.

Measures what share of the k highest logits the searches of the samplers find, and the time per
batch: one line per setting. Weights and queries come from a trained model (an `.npz` file with
`W [num_classes, dim]`, `b [num_classes]` and queries `H [num_queries, dim]`). Without a file,
weights and queries are random clusters. These show how the time grows, but not the recall for
real weights. The measured time does not include building the search structure.
"""

import time

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_search
from tf_largeout import layers, samplers

_WARM_UP = 3


def _inverted_file(num_probes):
    return lambda k: samplers.InvertedFileSampler(
        k, num_hard=None, num_probes=num_probes, start_step=0, seed=1
    )


def _hash_tables(hash, met):
    return lambda k: samplers.LSHSampler(met, num_hard=k, tables={"hash": hash}, seed=1)


# setting: (search, constructor for the number of classes to find)
SEARCHES = {
    "exact": ("exact", samplers.TopKSampler),
    **{
        f"inverted file, {probes} probes": ("inverted file", _inverted_file(probes))
        for probes in (4, 8, 12, 16, 24, 32, 64)
    },
    **{
        f"{hash} tables, {met:,} met most": (f"{hash} tables", _hash_tables(hash, met))
        for hash in ("simhash", "dwta")
        for met in (512, 1024, 2048, 4096)
    },
}


def main(arguments=None):
    """Measures the searches of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    weights, bias, queries = _problem(options)
    batches = _batches(queries, options.batch_size, options.steps + _WARM_UP)
    exact = _exact_top_k(weights, bias, batches, options.k)
    rows = []
    for setting in tqdm(options.settings, desc="search", unit="setting"):
        search, make = SEARCHES[setting]
        figures = measure(make(options.k), weights, bias, batches, exact)
        rows.append({"setting": setting, "search": search, **figures})
        tqdm.write(_line(rows[-1]))
    shape = {"num_classes": len(weights), "dim": weights.shape[1], "k": options.k}
    shape |= {"batch_size": options.batch_size, "weights": options.weights or "synthetic"}
    report = {"machine": machine.describe(), **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    if options.png:
        draw_search(report, options.png)
    return report


def measure(sampler, weights, bias, batches, exact):
    """Returns the recall, ms per batch, seconds per rebuild and MiB of state, as a dict.

    Args:
        sampler: A `HardNegativeSampler` that searches for k classes.
        weights: float32 `[num_classes, dim]`.
        bias: float32 `[num_classes]`.
        batches: List of float32 `[batch, dim]`.
        exact: List of int `[batch, k]`, the classes to find.
    """
    layer = _layer(weights, bias, sampler)
    rebuild_seconds = 0.0
    if hasattr(sampler, "rebuild"):
        start = time.perf_counter()
        sampler.rebuild(layer)
        rebuild_seconds = time.perf_counter() - start
    labels = tf.fill([len(batches[0]), 1], tf.constant(-1, tf.int64))
    search = tf.function(lambda features: sampler.search(features, labels, layer))
    milliseconds, recall = [], []
    for features, best in zip(batches, exact, strict=True):
        start = time.perf_counter()
        ids = search(features)
        machine.finish()
        milliseconds.append(1e3 * (time.perf_counter() - start))
        recall.append(_share_found(ids.numpy(), best))
    timed = milliseconds[_WARM_UP:]
    state = [weight for weight in layer.weights if weight.name.startswith("sampler_")]
    return {
        "recall": float(np.mean(recall)),
        "ms": float(np.median(timed)),
        "ms_10": float(np.quantile(timed, 0.1)),
        "rebuild_s": rebuild_seconds,
        "state_mb": sum(weight.numpy().nbytes for weight in state) / 2**20,
    }


def _share_found(ids, best):
    """Returns the share of the classes `best [batch, k]` that are in `ids`, per query."""
    return np.mean([np.isin(b, i).mean() for i, b in zip(ids, best, strict=True)])


def _layer(weights, bias, sampler=None):
    layer = layers.LargeOutput(len(weights), sampler=sampler)
    layer.build((None, weights.shape[1]))
    layer.embeddings.assign(weights)
    layer.bias.assign(bias)
    return layer


def _exact_top_k(weights, bias, batches, k):
    layer = _layer(weights, bias)
    progress = tqdm(batches, desc="exact top k", unit="batch")
    return [layer.top_k(features, k)[1].numpy() for features in progress]


def _batches(queries, batch_size, count):
    """Returns `count` batches, repeated if there are too few queries."""
    rows = np.arange(count * batch_size) % len(queries)
    return [tf.constant(queries[part]) for part in np.split(rows, count)]


def _problem(options):
    """Returns class embeddings, biases and queries."""
    if options.weights:
        with np.load(options.weights) as file:
            return tuple(np.asarray(file[name], np.float32) for name in "WbH")
    random = np.random.default_rng(0)
    shape = [options.num_classes // 20 + 1, options.dim]
    centres = random.normal(size=shape).astype(np.float32)

    def draw(count, noise):
        rows = centres[random.integers(len(centres), size=count)]
        return rows + noise * random.standard_normal(rows.shape, np.float32)

    weights = 0.25 * draw(options.num_classes, 0.5)
    return weights, np.zeros(options.num_classes, np.float32), draw(2048, 0.7)


def _line(row):
    time_text = f"{row['ms']:8.2f} ms (a tenth below {row['ms_10']:.2f})"
    size_text = f"rebuild {row['rebuild_s']:.1f} s, state {row['state_mb']:,.0f} MiB"
    return f"{row['setting']:28} recall {row['recall']:.3f} {time_text}, {size_text}"


def _parser():
    parser = new_parser("search", __doc__)
    parser.add_argument("--weights", help="file with trained weights and queries, see above")
    parser.add_argument("--num_classes", type=int, default=200_000, help="of synthetic weights")
    parser.add_argument("--dim", type=int, default=128, help="of synthetic weights")
    parser.add_argument("--k", type=int, default=64, help="classes to find")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60, help="measured batches")
    parser.add_argument("--settings", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    return parser
