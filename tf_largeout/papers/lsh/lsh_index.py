"""`LSHIndex`: finds the best of the classes that share most hash buckets with a query."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.classes.best_scores import search_without
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.papers.lsh.hash_tables import (
    DEFAULT_BIN_SIZE,
    HASHES,
    HashTables,
    checked_bin_size,
    default_num_hashes,
)
from tf_largeout.retrieval.index import Answer, Index, Search
from tf_largeout.retrieval.rows import Rows, best_of, weight_maker

_LOOKUPS_A_CANDIDATE = 8
_SEED = (0, 0)  # fixed, so that changed rows are hashed by the same functions


class HashedRows(Search):
    """Class rows, and hash tables of them.

    A query scores `num_candidates` classes, and reads at most `max_lookups` bucket entries.
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
        """Returns the best classes, scored by `scorer`, for an export, as `best_left` does.

        With an integer `k`, it finds the classes that `top_k` finds. If `k` is a tensor, the
        number of candidates is fixed, and a `k` above it scores all classes.
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


class LSHIndex(Index[HashedRows]):
    """Finds classes with high `<w_c, query> + b_c` by locality-sensitive hashing.

    All class rows are in hash tables. The classes that occur most often in a query's buckets
    are scored in float32, and the best of them are returned. With `hash="wta"` this is the
    inference of Vijayanarasimhan et al. 2015, section 3. Hashes compare only directions. So
    neither the length nor the bias of a class row affects whether it is a candidate. On trained
    weights, an `InvertedFileIndex` finds more of the best classes in less time. So use an
    `LSHIndex` only if you need hashing; see lab/retrieval/README.md.

    The index has its own rows in float32, `4 dim` bytes per class, even if the rows of the
    layer are bfloat16 or are normalized. The tables take at most `4.4 num_tables` more bytes
    per class. Each change of the rows hashes all rows again, with the same functions.

    Args:
        num_candidates: Number of classes to score per query, 4,096 by default. The search is
            exact if it is at least the number of classes.
        hash: "simhash", the default, "dwta" or "wta".
        num_tables: Number of hash tables, 50 by default.
        num_hashes: Number of hash values per bucket. None, the default, chooses it so that the
            buckets of a query have about `8 num_candidates` entries if all buckets have equal
            size.
        bin_size: For "dwta" and "wta", how many numbers a hash value compares: a power of two
            from 2 to 256, 8 by default. A value has `log2(bin_size)` bits. "simhash" does not
            use it. The paper's setting (section 4: k = 16, M = 1,000 bands, P = 3,000
            permutations) is `hash="wta", bin_size=16, num_tables=1000, num_hashes=3`.

    Raises:
        ValueError: If an argument is out of range.

    References:
        Vijayanarasimhan, Shlens, Monga, Yagnik 2015, "Deep networks with large output spaces".
    """

    def __init__(
        self,
        num_candidates: int = 4096,
        hash: str = "simhash",
        num_tables: int = 50,
        num_hashes: int | None = None,
        bin_size: int = DEFAULT_BIN_SIZE,
    ) -> None:
        super().__init__()
        self.num_candidates = whole_number("num_candidates", num_candidates)
        self.hash = one_of("hash", hash, HASHES)
        self.num_tables = whole_number("num_tables", num_tables)
        self.num_hashes = whole_number("num_hashes", num_hashes, or_none=True)
        self.bin_size = checked_bin_size(bin_size)

    def _fitted(self, rows: Rows) -> HashedRows:
        num_hashes = self.num_hashes or default_num_hashes(
            self.hash,
            self.num_tables,
            len(rows.alive),
            self.num_candidates,
            self.bin_size,
        )
        tables = self._tables(num_hashes)
        return HashedRows.hashed(rows, tables, self.num_candidates, self._max_lookups)

    def best_of(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best classes with our ops, for an export; see `HashedRows.best_of`."""
        return self._built().best_of(scorer, queries, k, exclude)

    def variables(self) -> list[tf.Variable]:
        """Returns the variables that `best_of` reads in addition to the class rows."""
        return self._built().variables()

    @property
    def _max_lookups(self) -> int:
        return _LOOKUPS_A_CANDIDATE * self.num_candidates

    def _tables(self, num_hashes: int) -> HashTables:
        return HashTables(self.hash, num_hashes, self.num_tables, self.bin_size)

    def _settings(self) -> dict[str, Any]:
        return {
            "num_candidates": self.num_candidates,
            "hash": self.hash,
            "num_tables": self.num_tables,
            "num_hashes": self._built().tables.num_hashes,
            "bin_size": self.bin_size,
        }

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> HashedRows:
        for name, value in settings.items():
            setattr(self, name, value)
        rows, tables = Rows.of_arrays(arrays), self._tables(settings["num_hashes"])
        tables.build(rows.matrix.num_classes, rows.matrix.dim, weight_maker(arrays))
        return HashedRows(rows, tables, self.num_candidates, self._max_lookups)
