"""The base classes of indexes: changes during searches, files, and recall on sample queries."""

import abc
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import is_whole, require_width, share
from tf_largeout.classes.best_scores import NOTHING, are_large
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.filtered_top_k import class_ids, exclusions
from tf_largeout.retrieval import index_file
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.types import TensorLike
from tf_largeout.wrong_arguments import OF_INDEXES, refuse_wrong_arguments_of

Answer = tuple[tf.Tensor, tf.Tensor]

_MOST_GRAPHS = 16
_MEASURED_QUERIES = 2048


class Search:
    """An immutable search over class rows: a pass over all of them, which is exact.

    With `packs`, it reads `Rows.packed`. A subclass adds a structure, and defines `scores_all`,
    `find`, `with_rows` and `arrays`.
    """

    def __init__(self, rows: Rows, packs: bool = False) -> None:
        self.rows, self._packs = rows.packed() if packs else rows, packs
        self._graphs: dict[tuple[int, int | None], Callable[..., Answer]] = {}

    def scores_all(self, k: int) -> bool:
        """Returns whether a search for `k` classes scores all classes."""
        return True

    def find(self, queries: tf.Tensor, k: int, exclude: tf.Tensor | None) -> Answer:
        """Returns `(scores, ids)`, the best classes that the structure leads to.

        They are float32 and int64 `[B, k]`, best first, padded with -inf and -1. `queries` are
        float32 `[B, dim]` and finite; `exclude` is int64 `[B, n]`, padded with -1, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `find`.")

    def with_rows(self, rows: Rows, changed: np.ndarray) -> Any:
        """Returns a search over `rows`, which differ from these only in `changed`, `[n]`."""
        return Search(rows, self._packs)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays of its state and of the rows, by name."""
        return self.rows.arrays()

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> Answer:
        """Like `Index.top_k`, for float32 queries `[B, dim]`; it checks the filters."""
        if allowed is not None or self.scores_all(k):
            return self.rows.top_k(queries, k, exclude, allowed)
        if exclude is not None:
            exclude = exclusions(exclude, queries, self.rows.matrix.num_classes)
        queries = checks.finite(queries, "The queries must be finite")
        found = self.find(queries, k, exclude)
        # If scores overflow, the found classes are arbitrary, and `Rows.top_k` raises an error.
        may_overflow = tf.reduce_any(are_large(queries)) | tf.reduce_any(found[0] == -NOTHING)
        return tf.cond(
            may_overflow, lambda: self.rows.top_k(queries, k, exclude), lambda: tuple(found)
        )

    def answer(
        self, queries: tf.Tensor, k: int, exclude: TensorLike | None, allowed: TensorLike | None
    ) -> Answer:
        """Like `top_k`, but eager calls run as one graph per `k`, which is faster."""
        if allowed is not None or not tf.executing_eagerly():
            return self.top_k(queries, k, exclude, allowed)
        if exclude is None:
            return self._graph(k, None)(queries)
        require_width(exclude, self.rows.matrix.num_classes)
        ids = class_ids("exclude", exclude)
        if ids.shape.rank != 2 or ids.shape[0] != queries.shape[0]:
            return self.top_k(queries, k, ids)  # raises the error
        # Pads to a power of 2, so that lists of many lengths share a graph.
        width = 1 << max(ids.shape[1] - 1, 0).bit_length()
        padding = [[0, 0], [0, width - ids.shape[1]]]
        return self._graph(k, width)(queries, tf.pad(ids, padding, constant_values=-1))

    def _graph(self, k: int, width: int | None) -> Callable[..., Answer]:
        """Returns the graph for `k`, and for exclusions of this width, or None for none."""
        graph = self._graphs.pop((k, width), None)
        if graph is None:
            specs = [tf.TensorSpec([None, self.rows.matrix.dim], tf.float32)]
            specs += [] if width is None else [tf.TensorSpec([None, width], tf.int64)]

            def run(*arguments: tf.Tensor) -> Answer:  # default arguments would make calls slow
                queries, exclude = arguments if width is not None else (*arguments, None)
                return self.top_k(queries, k, exclude)

            graph = tf.function(run, autograph=False).get_concrete_function(*specs)
        self._graphs[k, width] = graph  # the last one is the one used last
        if len(self._graphs) > _MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        return graph


SearchT = TypeVar("SearchT", bound=Search)
IndexT = TypeVar("IndexT", bound="Index[Any]")
MeasuredT = TypeVar("MeasuredT", bound="MeasuredIndex[Any]")


class Index(abc.ABC, Generic[SearchT]):
    """The base class of indexes of class rows, from a model or elsewhere.

    Searches can run in parallel with each other and with changes. Each search sees the rows
    either before or after a change. The id of a class never changes, and ids of removed classes
    are not used again.

    `add`, `update` and `remove` copy all rows once per call, so change many rows in one call.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "Index[SearchT]":
        refuse_wrong_arguments_of(cls, kwargs, OF_INDEXES)
        return super().__new__(cls)

    def __init__(self) -> None:
        self._search: SearchT | None = None
        self._changes = threading.Lock()
        self._kind: type[Rows] = Rows

    @abc.abstractmethod
    def _fitted(self, rows: Rows) -> SearchT:
        """Returns a search over `rows`."""

    @abc.abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Returns the other state that a file must contain, as JSON."""

    @abc.abstractmethod
    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> SearchT:
        """Restores a search from the results of `_settings` and `Search.arrays`."""

    def __len__(self) -> int:
        """Returns the number of classes, without removed ones; 0 before `build`."""
        return 0 if self._search is None else int(self._built().rows.alive.sum())

    def build(
        self: IndexT, class_embeddings: TensorLike, bias: TensorLike | None = None
    ) -> IndexT:
        """Sets the class rows to search; replaces those of an earlier `build`.

        Args:
            class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
            bias: Float `[num_classes]`, or None.

        Returns:
            The index itself.

        Raises:
            ValueError: If a shape is wrong, if there are no rows, or if a number is not finite.
                Also if the tables of an `LSHIndex` need more memory than the machine has.
        """
        search = self._fitted(self._kind.of(class_embeddings, bias))
        with self._changes:
            self._search = search
        return self

    @property
    def num_classes(self) -> int:
        """The number of ids, including those of removed classes."""
        return self._built().rows.matrix.num_classes

    @property
    def dim(self) -> int:
        """The width of a class row."""
        return self._built().rows.matrix.dim

    def top_k(
        self,
        queries: TensorLike,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best `k` classes for each query, eagerly or in a `tf.function`.

        A `tf.function` searches the rows that the index had when the function was traced. The
        first eager call with a new `k`, and the first eager call after a change, trace a graph.
        This takes a few tenths of a second.

        Args:
            queries: Float `[B, dim]`.
            k: At least 1. It may be larger than the number of classes.
            exclude: Integer ids `[B, n]`, padded with -1, of the classes that each query must
                not find. Or a list of lists or sets, a `tf.RaggedTensor`, or a SciPy sparse
                matrix, whose nonzero columns are excluded.
            allowed: Integer ids `[m]`, or a set, of the only classes that any query may find.
                The search among them is exact. None, the default, allows all classes.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first; padded with -inf and -1 if
            the search finds fewer than `k` classes.

        Raises:
            ValueError: If the index is not built, `k` is below 1, the queries have another
                width, or a filter has the wrong shape or does not contain integers.
            tf.errors.InvalidArgumentError: If the queries are not finite, their scores overflow
                float32, or an id of a filter is out of range.
        """
        search = self._built()
        if not (is_whole(k) and k >= 1):
            raise ValueError(f"`k` must be an integer of at least 1. Received: k={k!r}.")
        queries = rows_of("queries", queries, search.rows.matrix.dim)
        return search.answer(queries, int(k), exclude, allowed)

    def reconstruct(self, ids: TensorLike) -> np.ndarray:
        """Returns the rows of classes `ids`, `[n]`, without biases: float32 `[n, dim]`.

        They are those given to `build`, `add` or `update`, rounded if the index has 8-bit rows.

        Raises:
            ValueError: If the index is not built, or an id is out of range or removed.
        """
        rows = self._built().rows
        return rows.matrix.rows(rows.ids(ids)).numpy()

    def require_current(self, scorer: ClassScorer) -> None:
        """Raises a ValueError if one of 64 to 127 checked classes of a layer differs."""
        self._require(self._built().rows.agree_in_a_sample(scorer), scorer)

    def require_rows(self, scorer: ClassScorer) -> None:
        """Raises a ValueError unless the classes of `scorer` have the rows of this index."""
        self._require(self._built().rows.are_those_of(scorer), scorer)

    def _require(self, agrees: bool, scorer: ClassScorer) -> None:
        if agrees:
            return
        raise ValueError(
            "`index` must have the current rows and biases of the layer, which has "
            f"{scorer.num_classes} classes of width {scorer.dim}. Received: a "
            f"{type(self).__name__} of {self.num_classes} classes of width {self.dim}, "
            "with other embeddings or biases. Build it again after training, from "
            "layer.class_embeddings() and layer.class_biases()."
        )

    def add(self, class_embeddings: TensorLike, bias: TensorLike | None = None) -> np.ndarray:
        """Adds classes of rows `[n, dim]`, with biases `[n]` if and only if `build` had them.

        Returns:
            Their ids, int64 `[n]`, which follow the highest id so far.

        Raises:
            ValueError: As `build`; or if rows or biases do not match those of `build`.
        """
        with self._changes:
            search = self._built()
            rows = search.rows.added(class_embeddings, bias)
            ids = np.arange(len(search.rows.alive), len(rows.alive))
            self._search = search.with_rows(rows, ids)
            return ids

    def update(
        self, ids: TensorLike, class_embeddings: TensorLike, bias: TensorLike | None = None
    ) -> None:
        """Replaces the rows of distinct `ids`, `[n]`; a `bias` of None keeps the biases.

        Raises:
            ValueError: As `add`; or if an id is out of range or removed.
        """
        with self._changes:
            search = self._built()
            changed = search.rows.ids(ids)
            rows = search.rows.updated(changed, class_embeddings, bias)
            self._search = search.with_rows(rows, changed)

    def remove(self, ids: TensorLike) -> None:
        """Removes classes `ids`, `[n]`, so that no search finds them.

        Raises:
            ValueError: If an id is out of range or removed.
        """
        with self._changes:
            search = self._built()
            gone = search.rows.ids(ids)
            self._search = search.with_rows(search.rows.removed(gone), gone)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the index to one file. `path` never contains an incomplete file.

        Raises:
            ValueError: If the index is not built.
        """
        with self._changes:
            search, settings = self._built(), self._settings()
        index_file.write(path, type(self).__name__, settings, search.arrays())

    @classmethod
    def load(cls: type[IndexT], path: str | os.PathLike[str]) -> IndexT:
        """Loads the index from a file that `save` wrote.

        The file is mapped into memory, which processes that load the same file share. While the
        index is in use, you may remove the file, or rename another file to its name, as `save`
        does: the index keeps the old content. Do not write to the file in place. The index
        would use the new bytes without a check. If the file becomes shorter, the signal SIGBUS
        ends the process.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is damaged or truncated, or has another kind or version.
        """
        settings, arrays = index_file.read(path, cls.__name__)
        index = cls()
        index._search = index._restore(settings, arrays)
        return index

    def _built(self) -> SearchT:
        if self._search is None:
            raise ValueError("The index is empty. Call `build(class_embeddings)`, or `load`.")
        return self._search


class MeasuredIndex(Index[SearchT]):
    """An index that measures how much a query must search to find a share of the best classes.

    The share is `recall_target`, in (0, 1]. Without `measures`, the user has chosen how much a
    query searches.
    """

    def __init__(self, recall_target: float, measures: bool) -> None:
        super().__init__()
        self.recall_target = share("recall_target", recall_target)
        self._measures = measures

    @abc.abstractmethod
    def _measure(self, search: SearchT, queries: tf.Tensor, are_rows: bool) -> None:
        """Chooses how much a query searches, by `queries`, float32 `[n, dim]`, n at least 1.

        `are_rows` says whether they are class rows with noise.
        """

    def build(
        self: MeasuredT,
        class_embeddings: TensorLike,
        bias: TensorLike | None = None,
        queries: TensorLike | None = None,
    ) -> MeasuredT:
        """Sets the class rows to search, as `Index.build` does.

        Args:
            class_embeddings: As in `Index.build`.
            bias: As in `Index.build`.
            queries: Float `[n, dim]`, a few hundred typical queries, such as the inputs of the
                output layer for validation examples. `recall_target` is measured on 2,048 of
                them, drawn at random. None, the default, uses class rows with added noise of
                half their length. For a better estimate, pass your own queries.

        Returns:
            The index itself.

        Raises:
            ValueError: As in `Index.build`. Also if there are no queries, or their shape is
                wrong.
        """
        rows = Rows.of(class_embeddings, bias)
        if self._measures or queries is not None:
            sample = sample_queries(rows, queries)
        search = self._fitted(rows)
        if self._measures:
            self._measure(search, sample, are_rows=queries is None)
        with self._changes:
            self._search = search
        return self


def sample_queries(rows: Rows, queries: TensorLike | None) -> tf.Tensor:
    """Returns some of the `queries`, `[n, dim]`, or class rows with noise of half their length.

    They are chosen at random, because the queries may be sorted.
    """
    draws = np.random.default_rng(0)
    if queries is not None:
        queries = rows_of("queries", queries, rows.matrix.dim)
        if not len(queries):
            raise ValueError("`queries` must contain at least one query. Received: none.")
        return tf.gather(queries, np.sort(draws.permutation(len(queries))[:_MEASURED_QUERIES]))
    count = min(_MEASURED_QUERIES, rows.matrix.num_classes)
    drawn = draws.choice(rows.matrix.num_classes, count, replace=False)
    found = rows.matrix.rows(tf.constant(drawn))
    noise = draws.standard_normal(found.shape, np.float32) / np.sqrt(found.shape[1])
    squares = tf.square(tf.cast(found, tf.float64))  # do not overflow
    length = tf.cast(tf.sqrt(tf.reduce_sum(squares, axis=1, keepdims=True)), tf.float32)
    return found + 0.5 * length * noise


def lowest_of_best(scores: Any) -> np.ndarray:
    """Returns the scores `[n, 1]` from which a class counts as one of the best, `scores`."""
    last = np.asarray(scores)[:, -1:]
    # Another order of additions can cause this error.
    return last - 1e-5 * np.maximum(np.abs(last), 1e-30)
