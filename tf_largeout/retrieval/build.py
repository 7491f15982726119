"""`build`: measures several indexes, and returns the fastest."""

import importlib.util
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import share, whole_number
from tf_largeout.retrieval.brute_force_index import BruteForceIndex
from tf_largeout.retrieval.hnsw_index import HnswIndex
from tf_largeout.retrieval.index import Index, lowest_of_best, sample_queries
from tf_largeout.retrieval.inverted_file_index import InvertedFileIndex
from tf_largeout.retrieval.rows import Rows
from tf_largeout.types import TensorLike

_SECONDS, _LEAST_CALLS = 0.5, 5
_KINDS: dict[str, Callable[[float], Any]] = {
    "brute_force": lambda recall: BruteForceIndex(),
    "inverted_file": InvertedFileIndex,
    "hnsw": HnswIndex,
}


def build(
    class_embeddings: TensorLike,
    bias: TensorLike | None = None,
    recall: float = 0.95,
    queries: TensorLike | None = None,
    k: int = 10,
    batch_size: int = 1,
    kinds: Sequence[str] | None = None,
    verbose: bool = True,
) -> Index[Any]:
    """Builds several kinds of index, and returns the fastest that reaches the recall.

    Which index is fastest depends on the rows, the recall, the batch size and the machine.

    ```python
    rows, bias = np.random.normal(size=[2_000, 16]), np.zeros(2_000)
    index = tflo.retrieval.build(rows, bias, recall=0.9)
    scores, ids = index.top_k(rows[:3], 5)
    ```

    Args:
        class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
        bias: Float `[num_classes]`, or None.
        recall: In (0, 1], the share of the best `k` classes to find. Defaults to 0.95. Only the
            exact search is built for 1.
        queries: Float `[n, dim]`, a few hundred typical queries. None, the default, uses class
            rows with added noise, see `InvertedFileIndex.build`.
        k: Number of results per query. Defaults to 10.
        batch_size: Number of queries per call. Defaults to 1.
        kinds: Names of the kinds to build: "brute_force", "inverted_file" and "hnsw". None, the
            default, means all; "hnsw" only if the package hnswlib is installed. An `HnswIndex`
            takes longer to build than an `InvertedFileIndex`.
        verbose: Whether to print a line per index.

    Returns:
        The index with the least median time per query among those whose recall on the sample
        queries is at least `recall`. The exact search always qualifies, if it is among `kinds`.

    Raises:
        ValueError: If an argument is out of range, the shapes are wrong, or no index reaches
            the recall.
        ImportError: If "hnsw" is among `kinds`, and hnswlib is not installed.
    """
    recall = share("recall", recall)
    k, batch_size = whole_number("k", k), whole_number("batch_size", batch_size)
    names = _checked(kinds, recall)
    rows = Rows.of(class_embeddings, bias)
    sample = sample_queries(rows, queries)
    lowest = lowest_of_best(rows.top_k(sample, min(k, len(rows.alive)))[0])
    fastest, least, reached = None, math.inf, {}
    for name in names:
        index, start = _KINDS[name](recall), time.perf_counter()
        options = {} if isinstance(index, BruteForceIndex) else {"queries": sample}
        index.build(class_embeddings, bias, **options)
        seconds = time.perf_counter() - start
        found, milliseconds = _measured(index, sample, k, batch_size, lowest)
        reached[name] = round(found, 3)
        if found >= recall and milliseconds < least:
            fastest, least = index, milliseconds
        if verbose:
            print(
                f"{name:14} recall {found:.3f}, {milliseconds:.3f} ms per query, "
                f"built in {seconds:.1f} s",
                flush=True,
            )
    if fastest is None:
        raise ValueError(
            f"No index reaches the recall {recall}. Received: {reached}. Add 'brute_force' to "
            "`kinds`, or ask for less."
        )
    return fastest


def _checked(kinds: Sequence[str] | None, recall: float) -> list[str]:
    if kinds is None:
        has_hnsw = importlib.util.find_spec("hnswlib") is not None
        kinds = [name for name in _KINDS if name != "hnsw" or has_hnsw]
        return ["brute_force"] if recall == 1 else kinds
    kinds = list(kinds)
    if not kinds or not set(kinds) <= set(_KINDS):
        raise ValueError(f"`kinds` must be names among {list(_KINDS)}. Received: {kinds}.")
    return kinds


def _measured(
    index: Index[Any], queries: tf.Tensor, k: int, batch_size: int, lowest: np.ndarray
) -> tuple[float, float]:
    """Returns the recall of an index on `queries`, and its milliseconds per query."""
    scores = index.top_k(queries, k)[0].numpy()[:, : min(k, len(index))]
    firsts = range(0, len(queries), batch_size)
    batches = [queries[first : first + batch_size] for first in firsts]
    index.top_k(batches[0], k)  # traces
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _LEAST_CALLS or time.perf_counter() < end:
        batch = batches[len(times) % len(batches)]
        start = time.perf_counter()
        index.top_k(batch, k)
        times.append((time.perf_counter() - start) / len(batch))
    # The mean would depend on other programs that run.
    return float((scores >= lowest).mean()), 1e3 * float(np.median(times))
