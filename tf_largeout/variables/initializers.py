"""Initializers of weights: constants, arrays, and Keras initializers without copies."""

import copy
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.types import Config, Initializer, InitializerLike, Shape, TensorLike

_RANDOM = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)
_LARGE = 2**20  # values; below, copies take little memory


class ArrayInitializer:
    """An initializer that returns an array.

    Args:
        name: Name of the argument that received the array, for the message.
        values: Array of numbers.
    """

    def __init__(self, name: str, values: TensorLike) -> None:
        self.name, self.values = name, np.asarray(values)

    def __call__(self, shape: Shape, dtype: str | None = None) -> tf.Tensor:
        self.require_shape(shape)
        return constant_initializer(self.values.astype(dtype))(shape)

    def require_shape(self, shape: Shape) -> None:
        """Raises a ValueError if the array has another shape."""
        if tuple(shape) != self.values.shape:
            raise ValueError(
                f"An array in `{self.name}` must have the shape of the weight, {tuple(shape)}. "
                f"Received: an array of shape {self.values.shape}."
            )


def constant_initializer(value: np.ndarray) -> Callable[..., tf.Tensor]:
    """Returns an initializer that returns the numpy array `value`.

    If a variable is created in the first trace of a function, TensorFlow runs its initializer
    before the function. It cannot do this if an initializer has captured a tensor. Then it runs
    the initializers of all variables in the first call of the function, while other operations
    may already read their shapes. So the gradients of RNN layers in the same trace fail at
    random ("AddN must have the same size and shape").
    """

    def initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(lambda: value, [], value.dtype), shape)

    return initializer


def zeros_initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
    """Returns zeros of any type, created on the device of the variable.

    `tf.zeros` has no GPU kernel for uint32. A numpy array would be copied to the device, and
    into the graph if the variable is created in a function.
    """
    dtype = tf.as_dtype(dtype)
    if dtype == tf.uint32:
        return tf.bitcast(tf.zeros(shape), dtype)
    return tf.zeros(shape, dtype)


def step_and_none(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
    """Returns `[0, -1]`: a step counter, and the step of an event, -1 before the event."""
    return tf.constant([0, -1], dtype)


def get(
    name: str, identifier: InitializerLike | TensorLike | None, default: Initializer
) -> Initializer:
    """Returns an initializer as `keras.initializers.get` does, also for an array.

    Args:
        name: Name of the argument.
        identifier: An initializer, its name or config, an array of numbers, or None.
        default: The initializer for None.

    Raises:
        ValueError: If `identifier` is not an initializer, or an array of something other than
            numbers that are finite in float32.
    """
    if identifier is None:
        return default
    if not (tf.is_tensor(identifier) or isinstance(identifier, (np.ndarray, list, tuple))):
        return keras.initializers.get(identifier)
    values = np.asarray(identifier)
    is_bfloat16 = values.dtype == tf.bfloat16.as_numpy_dtype  # not a number for numpy
    if not (is_bfloat16 or np.issubdtype(values.dtype, np.number)):
        raise ValueError(
            f"`{name}` must be an initializer or an array of numbers. Received an array of "
            f"{values.dtype}."
        )
    _require_finite(name, values)
    return ArrayInitializer(name, values)


def _require_finite(name: str, values: np.ndarray) -> None:
    largest = np.finfo(np.float32).max
    # Without a copy of the array. NaN fails both comparisons.
    if values.size and not (values.min() >= -largest and values.max() <= largest):
        raise ValueError(
            f"An array in `{name}` must be finite in float32. Received: numbers from "
            f"{values.min()} to {values.max()}. Remove NaN and infinity, and divide larger "
            "numbers."
        )


def get_for_embeddings(identifier: InitializerLike | TensorLike | None) -> Initializer:
    """Returns the initializer of class embeddings `[n, dim]`, see `get`.

    The default is uniform with variance `1 / (4 dim)`.
    """
    default = keras.initializers.VarianceScaling(0.25, mode="fan_out", distribution="uniform")
    return get("embeddings_initializer", identifier, default)


def get_for_biases(identifier: InitializerLike | TensorLike | None) -> Initializer:
    """Returns the initializer of biases `[n]`, see `get`. The default is zeros."""
    return get("bias_initializer", identifier, keras.initializers.Zeros())


def serialize(initializer: Initializer) -> Config | None:
    """Returns an initializer's config; None for an array, which is saved with the weights."""
    if isinstance(initializer, ArrayInitializer):
        return None
    return keras.saving.serialize_keras_object(initializer)


def is_large(shape: Shape) -> bool:
    """Returns whether values of `shape` are drawn in a `tf.function`, which takes less memory.

    Small tensors are drawn eagerly, because this also works in a forked process. If the parent
    process has used TensorFlow, a function never returns in the child, because a fork does not
    copy TensorFlow's threads. Eager ops on small tensors need no threads.
    """
    return bool(np.prod(np.asarray(shape, np.int64)) >= _LARGE)


def without_copies(initializer: Initializer) -> Initializer:
    """Returns the same initializer, but a random one does not copy a large tensor.

    A random Keras initializer draws, scales and shifts into three tensors, so it takes three
    times the memory of the weight. In a function, TensorFlow scales and shifts in place. The
    seed must be an argument of this function. If it were a constant, TensorFlow would compute
    the values while it optimizes the function.
    """
    if not isinstance(initializer, _RANDOM):
        return initializer

    def values(shape: Shape, dtype: str | None = None) -> tf.Tensor:
        if not (tf.executing_eagerly() and is_large(shape)):
            return initializer(shape, dtype)
        drawing, seed = copy.copy(initializer), initializer.seed

        def draw(seed: tf.Tensor) -> tf.Tensor:
            drawing.seed = _FixedSeed(seed)
            return drawing(shape, dtype)

        if isinstance(seed, keras.random.SeedGenerator):
            seed = seed.next()
        else:
            seed = tf.constant([seed, 0], tf.int64)  # as Keras converts an integer
        # As a concrete function: TensorFlow warns about repeated tracing of calls.
        return tf.function(draw, autograph=False).get_concrete_function(seed)(seed)

    return values


class _FixedSeed(keras.random.SeedGenerator):
    """A seed that is given as the tensor `[seed, count]`."""

    def __init__(self, value: tf.Tensor) -> None:  # the base class would create a variable
        self._value = value

    def next(self, ordered: bool = True) -> tf.Tensor:
        return self._value
