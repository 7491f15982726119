"""Rows of different lengths as tensors in CPU memory, gathered one batch at a time."""

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.ragged import Ragged


class RaggedTensor:
    """`Ragged` rows that are padded when they are gathered.

    Args:
        ragged: A `Ragged`.
        dtype: Dtype of the values.
        padding: Value that fills short rows.
    """

    def __init__(self, ragged: Ragged, dtype: tf.DType, padding: int) -> None:
        # The extra value makes `padded` work if all rows are empty.
        values = np.append(ragged.values.astype(dtype.as_numpy_dtype, copy=False), padding)
        with tf.device("CPU:0"):
            self._values = tf.constant(values, dtype)
            self._starts = tf.constant(ragged.offsets[:-1])
            self._lengths = tf.constant(ragged.lengths)
        self._padding = padding

    def first(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the first value of each row. No row may be empty."""
        return tf.gather(self._values, tf.gather(self._starts, rows))

    def padded(self, rows: tf.Tensor, limit: int | None = None) -> tf.Tensor:
        """Returns rows as a padded matrix: as wide as the longest row, but at least 1 column.

        Args:
            rows: int64 row indices.
            limit: Maximum number of values per row; further values are dropped. None for no
                limit.
        """
        lengths = tf.gather(self._lengths, rows)
        if limit is not None:
            lengths = tf.minimum(lengths, tf.constant(min(limit, tf.int64.max), tf.int64))
        columns = tf.range(tf.maximum(tf.reduce_max(lengths), 1), dtype=tf.int64)
        positions = tf.gather(self._starts, rows)[:, None] + columns
        inside = columns < lengths[:, None]
        values = tf.gather(self._values, tf.where(inside, positions, 0))
        return tf.where(inside, values, tf.constant(self._padding, self._values.dtype))


class PaddedTensor:
    """`Ragged` rows that are padded with 0 in advance, which makes gathering faster.

    Args:
        ragged: A `Ragged`.
        width: Width of all rows, at least the length of the longest row.
        dtype: Dtype of the values.
    """

    def __init__(self, ragged: Ragged, width: int, dtype: tf.DType) -> None:
        with tf.device("CPU:0"):
            self._rows = tf.constant(ragged.padded(width, 0).astype(dtype.as_numpy_dtype))

    def padded(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows as a matrix `[num_rows, width]`."""
        return tf.gather(self._rows, rows)
