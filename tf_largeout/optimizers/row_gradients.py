"""Functions for gradients that may be sparse or dense."""

import tensorflow as tf

from tf_largeout.ops import row_ops
from tf_largeout.types import Gradient, Scalar


class RowGradient(tf.IndexedSlices):
    """`IndexedSlices` that support `/`, with which Keras unscales gradients."""

    def __truediv__(self, scale: Scalar) -> "RowGradient":
        return RowGradient(self.values / scale, self.indices, self.dense_shape)


def divisible(gradient: Gradient | None) -> Gradient | None:
    """Returns a gradient that Keras can divide."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def merged(gradient: Gradient | None) -> Gradient | None:
    """Returns the gradient with the gradients of repeated rows summed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, ids = row_ops.merge_rows(tf.cast(gradient.values, tf.float32), gradient.indices)
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def values_of(gradient: Gradient | None) -> tf.Tensor | None:
    """Returns the values of a gradient, without the ids of the rows."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def with_values(gradient: Gradient | None, values: tf.Tensor | None) -> Gradient | None:
    """Returns a gradient with other values: sparse if `gradient` is, else dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
