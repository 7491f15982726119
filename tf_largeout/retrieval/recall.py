"""Indexes that choose by the recall on sample queries how much they search."""

import abc
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import share
from tf_largeout.retrieval.index import Index, SearchT
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.types import TensorLike

_MEASURED_QUERIES = 2048


MeasuredT = TypeVar("MeasuredT", bound="MeasuredIndex[Any]")


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
    def _fitted(self, rows: Rows) -> SearchT:
        """Returns a search over `rows`."""

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
        """Sets the class rows to search; replaces those of an earlier `build`.

        Args:
            class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
            bias: Float `[num_classes]`, or None.
            queries: Float `[n, dim]`, a few hundred typical queries, such as the inputs of the
                output layer for validation examples. `recall_target` is measured on 2,048 of
                them, drawn at random. None, the default, uses class rows with added noise of
                half their length. These are about as far from their best classes as typical
                queries. For a better estimate, pass your own queries.

        Returns:
            The index itself.

        Raises:
            ValueError: If their shapes are wrong, there are no rows or no queries, or a number
                is not finite.
        """
        rows = Rows.of(class_embeddings, bias)
        sample = None
        if self._measures or queries is not None:
            sample = sample_queries(rows, queries)
        search = self._fitted(rows)
        if self._measures:
            self._measure(search, sample, are_rows=queries is None)
        self._use(search)
        return self


def sample_queries(rows: Rows, queries: TensorLike | None) -> tf.Tensor:
    """Returns queries on which to measure a recall.

    Of the given queries, `[n, dim]`, some are chosen at random, because they may be sorted.
    None gives class rows with noise of half their length.

    Raises:
        ValueError: If there are no queries, or they have another shape.
    """
    if queries is None:
        return _noisy_rows(rows)
    queries = rows_of("queries", queries, rows.matrix.dim)
    if not len(queries):
        raise ValueError("`queries` must contain at least one query. Received: none.")
    places = np.random.default_rng(0).permutation(len(queries))[:_MEASURED_QUERIES]
    return tf.gather(queries, np.sort(places))


def _noisy_rows(rows: Rows) -> tf.Tensor:
    draws = np.random.default_rng(0)
    count = min(_MEASURED_QUERIES, rows.matrix.num_classes)
    drawn = draws.choice(rows.matrix.num_classes, count, replace=False)
    found = rows.matrix.rows(tf.constant(drawn)).numpy()
    noise = draws.standard_normal(found.shape, np.float32) / np.sqrt(found.shape[1])
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return tf.constant(found + 0.5 * length * noise, tf.float32)


def lowest_of_best(rows: Rows, queries: tf.Tensor, k: int) -> np.ndarray:
    """Returns the scores `[n, 1]` from which a class counts as one of the best `k`."""
    scores = rows.top_k(queries, min(k, len(rows.alive)))[0].numpy()
    return with_rounding(scores[:, -1:])


def with_rounding(scores: np.ndarray) -> np.ndarray:
    """Lowers scores by the error that another order of additions can cause."""
    return scores - 1e-5 * np.maximum(np.abs(scores), 1e-30)
