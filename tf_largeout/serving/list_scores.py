"""An inverted file in an export: a few lists of classes are scored, by stock operations."""

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tf_largeout.retrieval import ClassLists

_NOTHING = -float("inf")


class ListIndex(Protocol):
    """What an export asks of an index, such as a `retrieval.InvertedFileIndex`."""

    def require_rows(self, matrix: Any) -> None:
        """Raises a ValueError unless the index is one of the classes of this class matrix."""

    def lists(self) -> ClassLists:
        """Lists of the classes, each class in one or in none; for the core export."""

    def best_of(
        self, matrix: Any, queries: tf.Tensor, k: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`, of classes scored by `matrix`; for the custom export."""

    def variables(self) -> list[tf.Variable]:
        """What `best_of` reads beside those of the matrix."""


class IndexedClasses:
    """The classes that an index finds, by our ops.

    Args:
        matrix: Scores the classes.
        index: Finds them.
    """

    def __init__(self, matrix: Any, index: ListIndex) -> None:
        self._matrix, self._index = matrix, index

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`."""
        return self._index.best_of(self._matrix, features, k)


class ListedProducts:
    """The classes of the best lists, scored exactly by their own rows.

    No loop and no ragged tensor: all lists are padded to one length. A query takes the memory
    of `num_probes * longest` rows.

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        bias: float32 variable `[num_classes]`, or None.
        lists: The lists.

    Raises:
        ValueError: If they are not lists of these classes.
    """

    def __init__(
        self, embeddings: tf.Variable, bias: tf.Variable | None, lists: ClassLists
    ) -> None:
        self._embeddings, self._bias = embeddings, bias
        _check(lists, tuple(embeddings.shape))
        self._means = tf.Variable(lists.means, trainable=False, dtype=tf.float32)
        self._mean_bias = tf.Variable(lists.mean_bias, trainable=False, dtype=tf.float32)
        self._members = tf.Variable(lists.members, trainable=False, dtype=tf.int32)
        self._num_probes = min(lists.num_probes, len(lists.means))

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`, of the classes of the best lists."""
        of_lists = tf.matmul(features, self._means, transpose_b=True) + self._mean_bias
        lists = tf.math.top_k(of_lists, self._num_probes)[1]
        width = self._num_probes * int(self._members.shape[1])
        ids = tf.reshape(tf.gather(self._members, lists), [-1, width])
        places = tf.maximum(ids, 0)
        rows = tf.gather(self._embeddings, places)
        scores = tf.squeeze(tf.matmul(rows, features[:, :, tf.newaxis]), axis=2)
        if self._bias is not None:
            scores += tf.gather(self._bias, places)
        scores = tf.where(ids >= 0, scores, _NOTHING)
        found = min(k, width) if isinstance(k, int) else tf.minimum(k, width)
        scores, places = tf.math.top_k(scores, found)
        ids = tf.cast(tf.gather(ids, places, batch_dims=1), tf.int64)
        padding = [[0, 0], [0, k - found]]
        return (
            tf.pad(scores, padding, constant_values=_NOTHING),
            tf.pad(ids, padding, constant_values=-1),
        )


def _check(lists: ClassLists, shape: tuple[int, int]) -> None:
    """Raises a ValueError where lists are not those of a matrix of this shape."""
    ids = np.sort(lists.members[lists.members >= 0])
    fits = lists.means.shape[1] == shape[1] and ids.size and ids[-1] < shape[0]
    if not fits or (np.diff(ids) == 0).any():
        raise ValueError(
            f"`index` must have classes of the layer, of rows {shape}, each in one list. "
            f"Received: lists of {ids.size} ids up to {ids.max(initial=-1)} for rows of width "
            f"{lists.means.shape[1]}. Build it from layer.class_embeddings() of this model."
        )
