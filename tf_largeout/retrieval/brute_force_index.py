"""`BruteForceIndex`: the exact best classes of a query, by a pass over all of them."""

import os
import threading

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import is_whole
from tf_largeout.retrieval import index_file
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.types import TensorLike


class BruteForceIndex:
    """Finds the `k` classes of highest `<w_c, query> + b_c`, exactly.

    For any rows, of a model or not. A search reads all of them, in blocks, and never holds a
    score of each. Searches run beside each other and beside changes: each sees the rows from
    before a change or after it.

    `add`, `update` and `remove` copy the rows once, whatever the number that changes: change
    many in one call. The id of a class never changes, and that of a removed one is not used
    again.
    """

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._changes = threading.Lock()

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
            self._rows = rows
        return self

    @property
    def num_classes(self) -> int:
        """How many ids there are, those of removed classes among them."""
        return self._built().matrix.num_classes

    @property
    def dim(self) -> int:
        """The width of a row."""
        return self._built().matrix.dim

    def top_k(
        self,
        queries: TensorLike,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The best `k` classes of each query, eagerly or in a `tf.function`.

        A function searches in the rows that the index had when it was traced.

        Args:
            queries: Float `[B, dim]`.
            k: At least 1; it may be more than there are classes.
            exclude: Integer ids `[B, n]`, padded with -1: classes that a query must not find.
            allowed: Integer ids `[m]`: the classes that any query may find. Default: all.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first, of equal scores the lower
            id; padded with -inf and -1 where fewer than `k` classes are left.

        Raises:
            ValueError: If the index is not built, `k` is below 1, the queries have another
                width, or a filter has another shape or no integers.
            tf.errors.InvalidArgumentError: If the queries are not finite, or a filter names a
                class that there is not.
        """
        rows = self._built()
        if not (is_whole(k) and k >= 1):
            raise ValueError(f"`k` must be an integer of at least 1. Received: k={k!r}.")
        return rows.top_k(rows_of("queries", queries, rows.matrix.dim), k, exclude, allowed)

    def add(self, class_embeddings: TensorLike, bias: TensorLike | None = None) -> np.ndarray:
        """Adds classes.

        Args:
            class_embeddings: Float `[n, dim]`.
            bias: Float `[n]`; None if and only if `build` had none.

        Returns:
            Their ids, int64 `[n]`: those that follow the highest id so far.

        Raises:
            ValueError: As `build`; or if rows or biases are unlike those of `build`.
        """
        with self._changes:
            old = self._built()
            self._rows = old.added(class_embeddings, bias)
            return np.arange(len(old.alive), len(self._rows.alive))

    def update(
        self, ids: TensorLike, class_embeddings: TensorLike, bias: TensorLike | None = None
    ) -> None:
        """Gives classes other rows.

        Args:
            ids: Integer `[n]`, distinct.
            class_embeddings: Float `[n, dim]`.
            bias: Float `[n]`. Default: the biases stay.

        Raises:
            ValueError: As `add`; or if a class is not there or has been removed.
        """
        with self._changes:
            rows = self._built()
            self._rows = rows.updated(rows.ids(ids), class_embeddings, bias)

    def remove(self, ids: TensorLike) -> None:
        """Removes classes: no search finds them any more.

        Args:
            ids: Integer `[n]`.

        Raises:
            ValueError: If a class is not there or has been removed.
        """
        with self._changes:
            rows = self._built()
            self._rows = rows.removed(rows.ids(ids))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index into one file, which is whole or not there at all.

        Raises:
            ValueError: If the index is not built.
        """
        index_file.write(path, type(self).__name__, {}, self._built().arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "BruteForceIndex":
        """The index of a file that `save` wrote.

        The rows are read where they lie in the file: processes that load one share its memory.

        Raises:
            FileNotFoundError: If there is no file.
            ValueError: If it is damaged, truncated, or of another kind or version.
        """
        _, arrays = index_file.read(path, cls.__name__)
        index = cls()
        index._rows = Rows.of_arrays(arrays)
        return index

    def _built(self) -> Rows:
        if self._rows is None:
            raise ValueError("The index is empty. Call `build(class_embeddings)`, or `load`.")
        return self._rows
