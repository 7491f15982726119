"""Initializers of weights that are no trainable parameters."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_largeout.types import Shape


def constant_initializer(value: np.ndarray) -> Callable[..., tf.Tensor]:
    """An initializer that gives the numpy array `value`.

    TensorFlow takes the initializers out of the function in whose first trace a variable is
    made. It cannot where one has captured a tensor, and then initializes all variables in the
    first call, in no order with what asks for their shapes: gradients of RNN layers, made in
    the same trace, fail at random ("AddN must have the same size and shape").
    """

    def initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(lambda: value, [], value.dtype), shape)

    return initializer


def zeros_initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
    """Zeros of any type, made on the device of the variable.

    A GPU fills no uint32, and a numpy array would be copied, into the graph even where a
    variable is made in a function.
    """
    dtype = tf.as_dtype(dtype)
    if dtype == tf.uint32:
        return tf.bitcast(tf.zeros(shape), dtype)
    return tf.zeros(shape, dtype)
