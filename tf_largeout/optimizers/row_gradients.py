"""Gradients that are rows or not, alike."""

import tensorflow as tf

from tf_largeout.ops import row_ops
from tf_largeout.types import Gradient, Scalar


class RowGradient(tf.IndexedSlices):
    """`IndexedSlices` that can be divided: Keras unscales gradients by `/`."""

    def __truediv__(self, scale: Scalar) -> "RowGradient":
        return RowGradient(self.values / scale, self.indices, self.dense_shape)


def divisible(gradient: Gradient | None) -> Gradient | None:
    """The gradient, as one that Keras can divide."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def merged(gradient: Gradient | None) -> Gradient | None:
    """The gradient, each row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, ids = row_ops.merge_rows(tf.cast(gradient.values, tf.float32), gradient.indices)
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def values_of(gradient: Gradient | None) -> tf.Tensor | None:
    """The numbers of a gradient, without the ids of rows."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def with_values(gradient: Gradient | None, values: tf.Tensor | None) -> Gradient | None:
    """A gradient of the rows of another one; of all where that has none."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
