"""`HnswIndex`: finds most of the best classes in a graph of neighbors, by hnswlib."""

from typing import Any

import numpy as np

from tf_largeout.arguments import share, whole_number
from tf_largeout.retrieval.graph_rows import GraphRows, hnswlib
from tf_largeout.retrieval.index import Index
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.retrieval.sample_queries import noisy_rows, some_of
from tf_largeout.types import TensorLike


class HnswIndex(Index[GraphRows]):
    """Finds most of the `k` classes with the highest `<w_c, query> + b_c` in a graph.

    An adapter for the HNSW graph of the library hnswlib (`pip install hnswlib`). Whether it is
    faster than an `InvertedFileIndex` of the same recall depends on the rows and the number of
    queries per call: `retrieval.build` measures both. It takes longer to build, and needs
    more memory: in addition to the rows, it stores a copy of them and about `8 max_neighbors`
    bytes per class.

    The graph proposes candidates, which are scored in float32. `build` measures how many
    candidates a query must keep to find the share `recall_target` of the best 10 classes of
    sample queries. For more classes, a query keeps proportionally more candidates. With
    `allowed`, the result is exact, because each allowed class is scored. With `exclude`, a
    query searches for as many more classes as it excludes.

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

    def __init__(
        self,
        recall_target: float = 0.95,
        ef_search: int | None = None,
        ef_construction: int = 200,
        max_neighbors: int = 16,
    ) -> None:
        super().__init__()
        hnswlib()
        self.recall_target = share("recall_target", recall_target)
        self._ef_search = whole_number("ef_search", ef_search, or_none=True)
        self.ef_construction = whole_number("ef_construction", ef_construction)
        self.max_neighbors = whole_number("max_neighbors", max_neighbors, 2)

    def build(
        self,
        class_embeddings: TensorLike,
        bias: TensorLike | None = None,
        queries: TensorLike | None = None,
    ) -> "HnswIndex":
        """Sets the class rows to search; replaces those of an earlier `build`.

        Args:
            class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
            bias: Float `[num_classes]`, or None.
            queries: As in `InvertedFileIndex.build`.

        Returns:
            The index itself.

        Raises:
            ValueError: If their shapes are wrong, there are no rows, or a number is not finite.
        """
        rows = Rows.of(class_embeddings, bias)
        sample = None if queries is None else rows_of("queries", queries, rows.matrix.dim)
        search = GraphRows.fitted(
            rows, self._ef_search or 1, self.ef_construction, self.max_neighbors
        )
        if self._ef_search is None:
            measured = noisy_rows(rows) if sample is None else some_of(sample)
            if len(measured):
                search.effort = search.fitted_effort(measured, self.recall_target)
        with self._changes:
            self._take(search)
        return self

    @property
    def ef_search(self) -> int:
        """Number of candidates that a query for 10 classes keeps."""
        return self._built().effort

    def _search_after(self, search: GraphRows, rows: Rows, ids: np.ndarray) -> GraphRows:
        return search.with_rows(rows, ids)

    def _settings(self) -> dict[str, Any]:
        search = self._built()
        return {
            "recall_target": self.recall_target,
            "ef_construction": self.ef_construction,
            "max_neighbors": self.max_neighbors,
            "effort": search.effort,
        }

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> GraphRows:
        for name in ("recall_target", "ef_construction", "max_neighbors"):
            setattr(self, name, settings[name])
        return GraphRows.of_arrays(arrays, settings["effort"])
