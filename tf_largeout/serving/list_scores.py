"""An inverted file in an export: a few lists of classes are scored, by stock operations."""

from typing import Protocol

import numpy as np
import tensorflow as tf

_NOTHING = -float("inf")


class ListIndex(Protocol):
    """What an export asks of an index: lists of classes, and how many of them to score."""

    @property
    def num_probes(self) -> int:
        """How many lists are scored for a query."""

    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the lists are.

        Returns:
            `(means, mean_bias, members)`: float32 `[num_lists, dim]` and `[num_lists]`, by
            which a query chooses its lists; and int32 `[num_lists, longest]`, the ids of their
            classes, padded with -1. Each class is in one list.
        """


class ListedProducts:
    """The classes of the best lists, scored exactly by their own rows.

    No loop and no ragged tensor: all lists are padded to one length. A query takes the memory
    of `num_probes * longest` rows.

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        bias: float32 variable `[num_classes]`, or None.
        index: The lists.

    Raises:
        ValueError: If they are not lists of these classes.
    """

    def __init__(
        self, embeddings: tf.Variable, bias: tf.Variable | None, index: ListIndex
    ) -> None:
        self._embeddings, self._bias = embeddings, bias
        means, mean_bias, members = index.lists()
        _check(means, members, tuple(embeddings.shape))
        self._means, self._mean_bias, self._members = (
            tf.Variable(value, trainable=False, dtype=dtype)
            for value, dtype in zip(
                (means, mean_bias, members), (tf.float32, tf.float32, tf.int32), strict=True
            )
        )
        self._num_probes = min(index.num_probes, len(means))

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


def _check(means: np.ndarray, members: np.ndarray, shape: tuple[int, int]) -> None:
    """Raises a ValueError where lists are not those of a matrix of this shape."""
    ids = np.sort(members[members >= 0])
    if means.shape[1] != shape[1] or not np.array_equal(ids, np.arange(shape[0])):
        raise ValueError(
            f"`index` must have each class of the layer, of rows {shape}, in one list. "
            f"Received: lists of {ids.size} ids for rows of width {means.shape[1]}. Build it "
            "from layer.class_embeddings() of this model."
        )
