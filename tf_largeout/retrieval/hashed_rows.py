"""Class rows in hash tables: the search of `LSHIndex`."""

import numpy as np
import tensorflow as tf

from tf_largeout.classes.best_scores import best_left
from tf_largeout.classes.filtered_top_k import exclusions
from tf_largeout.retrieval.rows import Rows, best_of, weight_maker
from tf_largeout.search.hash_tables import HashTables
from tf_largeout.types import TensorLike

_SEED = (0, 0)  # fixed, so that changed rows are hashed by the same functions


class HashedRows:
    """Class rows, and hash tables of them.

    Args:
        rows: The class rows.
        tables: Hash tables of them.
        num_candidates: Number of classes to score per query.
        max_lookups: Largest number of bucket entries that a query reads.

    Attributes:
        rows, tables: As above.
    """

    def __init__(
        self, rows: Rows, tables: HashTables, num_candidates: int, max_lookups: int
    ) -> None:
        self.rows, self.tables = rows, tables
        self._num_candidates, self._max_lookups = num_candidates, max_lookups

    @classmethod
    def hashed(
        cls, rows: Rows, tables: HashTables, num_candidates: int, max_lookups: int
    ) -> "HashedRows":
        """Builds `tables` and puts the rows into them."""
        tables.build(rows.matrix.num_classes, rows.matrix.dim, weight_maker({}))
        tables.rebuild(rows.matrix.variables()[0], tf.constant(_SEED, tf.int64))
        return cls(rows, tables, num_candidates, max_lookups)

    def with_rows(self, rows: Rows) -> "HashedRows":
        """Returns the same kind of tables for other rows, which it hashes again."""
        tables = HashTables(self.tables.kind, self.tables.num_hashes, self.tables.num_tables)
        return HashedRows.hashed(rows, tables, self._num_candidates, self._max_lookups)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns rows and tables, by name."""
        return {**self.rows.arrays(), **self.tables.arrays()}

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `Index.top_k`. If all classes are candidates, it scores all classes."""
        num_classes = self.rows.matrix.num_classes
        if allowed is not None or max(k, self._num_candidates) >= num_classes:
            return self.rows.top_k(queries, k, exclude, allowed)
        queries = tf.debugging.check_numerics(queries, "The queries must be finite")
        excluded = tf.fill([tf.shape(queries)[0], 1], tf.constant(-1, tf.int64))
        if exclude is not None:
            excluded = exclusions(exclude, queries, num_classes)
        ids, _ = self.tables.query(
            self.tables.codes(queries),
            excluded,
            "frequent",
            max(k, self._num_candidates),
            max(k, self._max_lookups),
        )
        return best_left(*best_of(self.rows.matrix, queries, ids, k), None, k)
