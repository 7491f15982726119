"""Rows of different lengths as tensors, in CPU memory and gathered a batch at a time."""

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.ragged import Ragged


class RaggedTensor:
    """`Ragged` rows that are padded when they are gathered.

    Args:
        ragged: a `Ragged`.
        dtype: of the values.
        padding: what short rows are filled with.
    """

    def __init__(self, ragged: Ragged, dtype: tf.DType, padding: int) -> None:
        # One value too many: `padded` reads it where no row has any.
        values = np.append(ragged.values.astype(dtype.as_numpy_dtype, copy=False), padding)
        with tf.device("CPU:0"):
            self._values = tf.constant(values, dtype)
            self._starts = tf.constant(ragged.offsets[:-1])
            self._lengths = tf.constant(ragged.lengths)
        self._padding = padding

    def first(self, rows: tf.Tensor) -> tf.Tensor:
        """The first value of each row, none of which may be empty."""
        return tf.gather(self._values, tf.gather(self._starts, rows))

    def padded(self, rows: tf.Tensor, limit: int | None = None) -> tf.Tensor:
        """The rows as a matrix as wide as the longest of them, at least 1.

        Args:
            rows: int64 row numbers.
            limit: of longer rows only the first `limit` values are taken; None for all.
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
    """`Ragged` rows that were padded before, which are faster to gather.

    Args:
        ragged: a `Ragged`.
        width: of all rows, at least the longest row's length.
        dtype: of the values; rows are padded with 0.
    """

    def __init__(self, ragged: Ragged, width: int, dtype: tf.DType) -> None:
        with tf.device("CPU:0"):
            self._rows = tf.constant(ragged.padded(width, 0).astype(dtype.as_numpy_dtype))

    def padded(self, rows: tf.Tensor) -> tf.Tensor:
        """The rows as a matrix `[num_rows, width]`."""
        return tf.gather(self._rows, rows)
