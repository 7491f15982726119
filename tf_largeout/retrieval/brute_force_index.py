"""`BruteForceIndex`: the exact best classes of a query, by a pass over all of them."""

from typing import Any

import numpy as np

from tf_largeout.retrieval.index import Index
from tf_largeout.retrieval.rows import Rows
from tf_largeout.types import TensorLike


class BruteForceIndex(Index[Rows]):
    """Finds the `k` classes of highest `<w_c, query> + b_c`, exactly.

    For any rows, of a model or not. A search reads all of them, in blocks, and never holds a
    score of each; of equal scores the lower id comes first. See `Index` for what changes cost.
    """

    def build(
        self, class_embeddings: TensorLike, bias: TensorLike | None = None
    ) -> "BruteForceIndex":
        """Takes the rows to search in; those of an earlier `build` are forgotten.

        Args:
            class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
            bias: Float `[num_classes]`, or None.

        Returns:
            The index itself.

        Raises:
            ValueError: If they have other shapes, no row, or numbers that are not finite.
        """
        rows = Rows.of(class_embeddings, bias)
        with self._changes:
            self._take(rows)
        return self

    def _search_after(self, search: Rows, rows: Rows, ids: np.ndarray) -> Rows:
        return rows

    def _settings(self) -> dict[str, Any]:
        return {}

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> Rows:
        return Rows.of_arrays(arrays)
