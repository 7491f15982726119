"""Class rows in hash tables: the search of `LSHIndex`."""

import functools

import numpy as np
import tensorflow as tf

from tf_largeout.classes.best_scores import search_without
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.papers.lsh.hash_tables import HashTables
from tf_largeout.retrieval.index import Answer, Search
from tf_largeout.retrieval.rows import Rows, best_of, weight_maker

_SEED = (0, 0)  # fixed, so that changed rows are hashed by the same functions


class HashedRows(Search):
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
        super().__init__(rows)
        self.tables = tables
        self._num_candidates, self._max_lookups = num_candidates, max_lookups
        self._alive = None if rows.alive.all() else tf.Variable(rows.alive, trainable=False)

    @classmethod
    def hashed(
        cls, rows: Rows, tables: HashTables, num_candidates: int, max_lookups: int
    ) -> "HashedRows":
        """Builds `tables` and puts the rows into them."""
        tables.build(rows.matrix.num_classes, rows.matrix.dim, weight_maker({}))
        tables.rebuild(rows.matrix.variables()[0], tf.constant(_SEED, tf.int64))
        return cls(rows, tables, num_candidates, max_lookups)

    def with_rows(self, rows: Rows, changed: np.ndarray) -> "HashedRows":
        """Returns the same kind of tables for other rows. It hashes all of them again."""
        old = self.tables
        tables = HashTables(old.kind, old.num_hashes, old.num_tables, old.bin_size)
        return HashedRows.hashed(rows, tables, self._num_candidates, self._max_lookups)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns rows and tables, by name."""
        return {**self.rows.arrays(), **self.tables.arrays()}

    def scores_all(self, k: int) -> bool:
        return max(k, self._num_candidates) >= self.rows.matrix.num_classes

    def find(self, queries: tf.Tensor, k: int, exclude: tf.Tensor | None) -> Answer:
        return self._best_of_buckets(self.rows.matrix, queries, k, exclude)

    def best_of(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> Answer:
        """Returns the best classes, scored by `scorer`, for an export.

        With an integer `k`, it finds the classes that `top_k` finds. If `k` is a tensor, the
        number of candidates is fixed, and a `k` above it scores all classes.

        Args:
            scorer: Scores the classes; it has these rows.
            queries: float32 `[B, dim]`, finite.
            k: From 1 to the number of classes.
            exclude: int64 `[B, n]`; ids that are not classes exclude nothing. Or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first, padded with -inf and -1.
        """
        of_buckets = functools.partial(self._best_of_buckets, scorer, queries, k, exclude)
        of_all = functools.partial(self._best_of_all, scorer, queries, k, exclude)
        if self._num_candidates >= scorer.num_classes:
            return of_all()
        if isinstance(k, int):
            return of_all() if k >= scorer.num_classes else of_buckets()
        return tf.cond(k <= self._num_candidates, of_buckets, of_all)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables that `best_of` reads in addition to those of the scorer."""
        return self.tables.variables() + ([] if self._alive is None else [self._alive])

    def _best_of_buckets(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None,
    ) -> Answer:
        """Like `best_of`, among the classes that share most buckets with a query."""
        sizes = self._num_candidates, self._max_lookups
        if isinstance(k, int):
            sizes = max(k, sizes[0]), max(k, sizes[1])
        if exclude is None:
            exclude = tf.fill([tf.shape(queries)[0], 1], tf.constant(-1, tf.int64))
        exclude = tf.where((exclude >= 0) & (exclude < scorer.num_classes), exclude, -1)
        ids, _ = self.tables.query(self.tables.codes(queries), exclude, "frequent", *sizes)
        if self._alive is not None:
            ids = tf.where(tf.gather(self._alive, tf.maximum(ids, 0)), ids, -1)
        return best_of(scorer, queries, ids, k)

    def _best_of_all(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None,
    ) -> Answer:
        """Like `best_of`, among all classes."""
        if self._alive is not None:
            removed = tf.constant(np.flatnonzero(~self.rows.alive)[np.newaxis], tf.int64)
            removed = tf.repeat(removed, tf.shape(queries)[0], axis=0)
            exclude = removed if exclude is None else tf.concat([exclude, removed], axis=1)
        search = functools.partial(scorer.top_k, queries)
        return search_without(search, scorer.num_classes, exclude, k)
