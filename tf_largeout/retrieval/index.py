"""What all indexes share: rows that come and go beside searches, and the file."""

import abc
import os
import threading
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import is_whole
from tf_largeout.retrieval import index_file
from tf_largeout.retrieval.compiled_search import CompiledSearch
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.types import TensorLike


class Search(Protocol):
    """A way to search in rows, which never changes: changes make another."""

    @property
    def rows(self) -> Rows:
        """The rows."""

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: TensorLike | None,
        allowed: TensorLike | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `Index.top_k`, of arguments that are checked but for the filters."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is, by name, with what `rows.arrays` gives."""


SearchT = TypeVar("SearchT", bound=Search)
IndexT = TypeVar("IndexT", bound="Index[Any]")


class Index(abc.ABC, Generic[SearchT]):
    """The base of indexes of class rows, of a model or not.

    Searches run beside each other and beside changes: each sees the rows from before a change
    or after it. The id of a class never changes, and that of a removed one is not used again.

    `add`, `update` and `remove` copy the rows once, whatever the number that changes: change
    many in one call.
    """

    def __init__(self) -> None:
        self._compiled: CompiledSearch | None = None
        self._changes = threading.Lock()

    @abc.abstractmethod
    def _search_after(self, search: SearchT, rows: Rows, ids: np.ndarray) -> SearchT:
        """The search in `rows`, which differ from those of `search` in `ids` alone."""

    @abc.abstractmethod
    def _settings(self) -> dict[str, Any]:
        """What else a file must have, as JSON takes it."""

    @abc.abstractmethod
    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> SearchT:
        """Takes what `_settings` and `arrays` of a search gave."""

    def __len__(self) -> int:
        """The number of classes, without removed ones; 0 before `build`."""
        return 0 if self._compiled is None else int(self._built().rows.alive.sum())

    @property
    def num_classes(self) -> int:
        """How many ids there are, those of removed classes among them."""
        return self._built().rows.matrix.num_classes

    @property
    def dim(self) -> int:
        """The width of a row."""
        return self._built().rows.matrix.dim

    def top_k(
        self,
        queries: TensorLike,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The best `k` classes of each query, eagerly or in a `tf.function`.

        A function searches in the rows that the index had when it was traced. The first eager
        call with a `k` traces a graph, some tenths of a second, also after a change.

        Args:
            queries: Float `[B, dim]`.
            k: At least 1; it may be more than there are classes.
            exclude: Integer ids `[B, n]`, padded with -1: classes that a query must not find.
                Or a list of lists or sets, a `tf.RaggedTensor`, or a sparse matrix of SciPy,
                which excludes the columns that are not 0.
            allowed: Integer ids `[m]`, or a set: the classes that any query may find, of which
                the best are found exactly. Default: all.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first; padded with -inf and -1
            where fewer than `k` classes are found.

        Raises:
            ValueError: If the index is not built, `k` is below 1, the queries have another
                width, or a filter has another shape or no integers.
            tf.errors.InvalidArgumentError: If the queries are not finite, or a filter names a
                class that there is not.
        """
        compiled = self._require_built()
        if not (is_whole(k) and k >= 1):
            raise ValueError(f"`k` must be an integer of at least 1. Received: k={k!r}.")
        queries = rows_of("queries", queries, compiled.search.rows.matrix.dim)
        return compiled.top_k(queries, int(k), exclude, allowed)

    def reconstruct(self, ids: TensorLike) -> np.ndarray:
        """The rows of classes, as `build`, `add` or `update` got them, without biases.

        Args:
            ids: Integer `[n]`.

        Returns:
            float32 `[n, dim]`.

        Raises:
            ValueError: If the index is not built, or a class is not there or has been removed.
        """
        rows = self._built().rows
        return rows.matrix.rows(rows.ids(ids)).numpy()

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
            search = self._built()
            rows = search.rows.added(class_embeddings, bias)
            ids = np.arange(len(search.rows.alive), len(rows.alive))
            self._take(self._search_after(search, rows, ids))
            return ids

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
            search = self._built()
            changed = search.rows.ids(ids)
            rows = search.rows.updated(changed, class_embeddings, bias)
            self._take(self._search_after(search, rows, changed))

    def remove(self, ids: TensorLike) -> None:
        """Removes classes: no search finds them any more.

        Args:
            ids: Integer `[n]`.

        Raises:
            ValueError: If a class is not there or has been removed.
        """
        with self._changes:
            search = self._built()
            gone = search.rows.ids(ids)
            self._take(self._search_after(search, search.rows.removed(gone), gone))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index into one file, which is whole or not there at all.

        Raises:
            ValueError: If the index is not built.
        """
        with self._changes:
            search, settings = self._built(), self._settings()
        index_file.write(path, type(self).__name__, settings, search.arrays())

    @classmethod
    def load(cls: type[IndexT], path: str | os.PathLike[str]) -> IndexT:
        """The index of a file that `save` wrote.

        The rows are not copied: the file is mapped into memory, and processes that load the
        same file share this memory. While the index is in use, the file may be replaced by
        another one with a rename, as `save` does, or removed: the index keeps the old content.
        The file must not be written in place. The index would answer from the new bytes,
        without a check; if the file gets shorter, the process ends with the signal SIGBUS.

        Raises:
            FileNotFoundError: If there is no file.
            ValueError: If it is damaged, truncated, or of another kind or version.
        """
        settings, arrays = index_file.read(path, cls.__name__)
        index = cls()
        index._take(index._restore(settings, arrays))
        return index

    def _take(self, search: SearchT) -> None:
        """Searches go through `search` from now on."""
        self._compiled = CompiledSearch(search)

    def _built(self) -> SearchT:
        return self._require_built().search

    def _require_built(self) -> CompiledSearch:
        if self._compiled is None:
            raise ValueError("The index is empty. Call `build(class_embeddings)`, or `load`.")
        return self._compiled
