"""`BruteForceIndex`: the exact best classes of a query, by a pass over all of them."""

from typing import Any

import numpy as np

from tf_largeout.arguments import boolean
from tf_largeout.retrieval.index import Index
from tf_largeout.retrieval.rows import Rows
from tf_largeout.types import TensorLike


class BruteForceIndex(Index[Rows]):
    """Finds the `k` classes of highest `<w_c, query> + b_c`, exactly.

    For any rows, of a model or not. A search reads all of them, in blocks, and never holds a
    score of each; of equal scores the lower id comes first. See `Index` for what changes cost.

    Args:
        packed: Whether to keep the rows at 8 bits a number too: about 30 % more memory. A
            search reads these and, of the rows, only those that can be among the best, by
            bounds that hold for every rounding: the same answers, to the bit, in less time.
            Rows narrower than 32, and rows on a GPU, are never packed.

    Raises:
        ValueError: If `packed` is no bool.
    """

    def __init__(self, packed: bool = True) -> None:
        super().__init__()
        self._packed = boolean("packed", packed)

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
        rows = self._searched(Rows.of(class_embeddings, bias))
        with self._changes:
            self._take(rows)
        return self

    def _search_after(self, search: Rows, rows: Rows, ids: np.ndarray) -> Rows:
        return self._searched(rows)

    def _settings(self) -> dict[str, Any]:
        return {"packed": self._packed}

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> Rows:
        self._packed = settings.get("packed", True)
        return self._searched(Rows.of_arrays(arrays))

    def _searched(self, rows: Rows) -> Rows:
        return rows.packed() if self._packed else rows
