"""`HnswIndex`: finds most of the best classes in a graph of neighbors, by hnswlib."""

import os
import pickle
import tempfile
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.classes.best_scores import are_among
from tf_largeout.retrieval.index import Answer, MeasuredIndex, Search, lowest_of_best
from tf_largeout.retrieval.rows import Rows, best_of

_RECALLED = 10  # results per query for which `fitted_effort` measures the recall
_EFFORTS = [16 * 2**power for power in range(9)]


class HnswIndex(MeasuredIndex["GraphRows"]):
    """Finds most of the `k` classes with the highest `<w_c, query> + b_c` in a graph.

    An adapter for the HNSW graph of the library hnswlib (`pip install hnswlib`). Whether it is
    faster than an `InvertedFileIndex` of the same recall depends on the rows and the number of
    queries per call: `retrieval.build` measures both. It takes longer to build, and stores a
    copy of the rows and about `8 max_neighbors` bytes per class.

    The graph proposes candidates, which are scored in float32. `build` measures how many
    candidates a query must keep to find the share `recall_target` of the best 10 classes of
    sample queries. For more classes, a query keeps proportionally more. With `allowed`, the
    result is exact. With `exclude`, a query searches for as many more classes as it excludes.

    Several threads build the graph, so two builds of the same rows can give different results.
    `add`, `update` and `remove` copy the graph. `serving.export` does not support this index.

    Args:
        recall_target: In (0, 1], by default 0.95.
        ef_search: Number of candidates that a query keeps. None, the default, chooses it by
            `recall_target`, up to 4,096.
        ef_construction: Number of candidates that are kept when a row is added to the graph.
            More make a better graph and take longer. Defaults to 200, as in hnswlib.
        max_neighbors: Number of edges per class (`M`). Defaults to 16, as in hnswlib.

    Raises:
        ImportError: If hnswlib is not installed.
        ValueError: If an argument is out of range.

    References:
        Malkov and Yashunin 2020, "Efficient and robust approximate nearest neighbor search
        using hierarchical navigable small world graphs".
    """

    _SAVED = ("recall_target", "ef_construction", "max_neighbors")

    def __init__(
        self,
        recall_target: float = 0.95,
        ef_search: int | None = None,
        ef_construction: int = 200,
        max_neighbors: int = 16,
    ) -> None:
        super().__init__(recall_target, measures=ef_search is None)
        hnswlib()
        self._ef_search = whole_number("ef_search", ef_search, or_none=True)
        self.ef_construction = whole_number("ef_construction", ef_construction)
        self.max_neighbors = whole_number("max_neighbors", max_neighbors, 2)

    def _fitted(self, rows: Rows) -> "GraphRows":
        values = _with_bias(rows, np.arange(len(rows.alive)))
        graph = hnswlib().Index(space="ip", dim=values.shape[1])
        graph.init_index(
            max_elements=len(values), M=self.max_neighbors, ef_construction=self.ef_construction
        )
        graph.add_items(values, np.arange(len(values)))
        return GraphRows(rows, graph, self._ef_search or 1)

    def _measure(self, search: "GraphRows", queries: tf.Tensor, are_rows: bool) -> None:
        k = min(_RECALLED, len(search.rows.alive))
        lowest = lowest_of_best(search.rows.top_k(queries, k)[0])
        for effort in _EFFORTS:
            search.effort = effort
            found = search.top_k(queries, k)[0].numpy()
            is_enough = np.mean(found >= lowest) >= self.recall_target
            if is_enough or effort >= len(search.rows.alive):
                break

    @property
    def ef_search(self) -> int:
        """Number of candidates that a query for 10 classes keeps."""
        return self._built().effort

    def _settings(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in self._SAVED}
        return {**named, "effort": self._built().effort}

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> "GraphRows":
        for name in self._SAVED:
            setattr(self, name, settings[name])
        rows = Rows.of_arrays(arrays)
        graph = hnswlib().Index(space="ip", dim=rows.matrix.dim + rows.matrix.has_bias)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph")
            arrays["graph"].tofile(path)
            graph.load_index(path)
        return GraphRows(rows, graph, settings["effort"])


class GraphRows(Search):
    """Class rows, and a graph of them, which is not changed.

    A graph of hnswlib searches for the largest inner product. The bias is one more number of
    each row, and 1 in each query. A query for 10 classes keeps `effort` candidates (`ef`).
    """

    def __init__(self, rows: Rows, graph: Any, effort: int) -> None:
        super().__init__(rows)
        self.graph, self.effort = graph, effort

    def arrays(self) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph")
            self.graph.save_index(path)
            graph = np.fromfile(path, np.uint8)
        return {**self.rows.arrays(), "graph": graph}

    def with_rows(self, rows: Rows, changed: np.ndarray) -> "GraphRows":
        graph = pickle.loads(pickle.dumps(self.graph))
        if len(rows.alive) > graph.get_max_elements():
            graph.resize_index(len(rows.alive))
        for removed in changed[~rows.alive[changed]].tolist():
            graph.mark_deleted(removed)
        there = changed[rows.alive[changed]]
        if len(there):
            graph.add_items(_with_bias(rows, there), there)
        return GraphRows(rows, graph, self.effort)

    def scores_all(self, k: int) -> bool:
        return k > self.rows.alive.sum()

    def find(self, queries: tf.Tensor, k: int, exclude: tf.Tensor | None) -> Answer:
        """See `Search.find`. It finds one more candidate per excluded class."""
        count = k if exclude is None else k + tf.shape(exclude)[1]
        ids = tf.numpy_function(self._candidates, [queries, count, k], tf.int64)
        ids.set_shape([queries.shape[0], None])
        if exclude is not None:
            ids = tf.where(are_among(ids, exclude), tf.constant(-1, tf.int64), ids)
        return best_of(self.rows.matrix, queries, ids, k)

    def _candidates(self, features: np.ndarray, count: int, k: int) -> np.ndarray:
        """Returns ids of the best `count` classes that the graph finds, int64 `[B, count]`."""
        count = int(min(count, self.rows.alive.sum()))
        if not len(features):
            return np.zeros([0, count], np.int64)
        queries = features
        if self.rows.matrix.has_bias:
            queries = np.concatenate([features, np.ones_like(features[:, :1])], axis=1)
        self.graph.set_ef(int(max(count, self.effort * max(1.0, k / _RECALLED))))
        try:
            return self.graph.knn_query(queries, count)[0].astype(np.int64)
        except RuntimeError:  # the graph does not lead to so many classes
            return self.rows.top_k(tf.constant(features), count)[1].numpy()


def hnswlib() -> ModuleType:
    """Returns the library; raises an ImportError if it is not installed."""
    try:
        import hnswlib
    except ImportError as error:
        raise ImportError(
            "HnswIndex needs the package hnswlib. Install it: pip install hnswlib. It is "
            "compiled from source, for which you need a C++ compiler."
        ) from error
    return hnswlib


def _with_bias(rows: Rows, ids: np.ndarray) -> np.ndarray:
    """Returns class rows, followed by their biases if there are any."""
    embeddings, bias = rows.matrix.variables()
    found = tf.gather(embeddings, ids).numpy()
    if bias is None:
        return found
    return np.concatenate([found, tf.gather(bias, ids).numpy()[:, np.newaxis]], axis=1)
