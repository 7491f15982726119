"""The values that weights start from: an initializer of Keras, or an array of them."""

import copy

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.types import Config, Initializer, InitializerLike, Shape, TensorLike
from tf_largeout.variables.initializers import constant_initializer

_RANDOM = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)
_MANY = 2**20  # numbers; of fewer, copies take little memory


class InitialValues:
    """An initializer that gives an array.

    Args:
        name: Name of the argument that it came by, for the message.
        values: Array of numbers.
    """

    def __init__(self, name: str, values: TensorLike) -> None:
        self.name, self.values = name, np.asarray(values)

    def __call__(self, shape: Shape, dtype: str | None = None) -> tf.Tensor:
        self.require_shape(shape)
        return constant_initializer(self.values.astype(dtype))(shape)

    def require_shape(self, shape: Shape) -> None:
        """Raises a ValueError where the array is of another shape."""
        if tuple(shape) != self.values.shape:
            raise ValueError(
                f"An array in `{self.name}` must have the shape of the weight, {tuple(shape)}. "
                f"Received: an array of shape {self.values.shape}."
            )


def get(
    name: str, identifier: InitializerLike | TensorLike | None, default: Initializer
) -> Initializer:
    """The initializer that `identifier` means, as `keras.initializers.get` does.

    Args:
        name: Name of the argument.
        identifier: An initializer, its name or config, an array of numbers, or None.
        default: The initializer that None means.

    Raises:
        ValueError: If it means no initializer, or holds something else than numbers.
    """
    if identifier is None:
        return default
    if not (tf.is_tensor(identifier) or isinstance(identifier, (np.ndarray, list, tuple))):
        return keras.initializers.get(identifier)
    values = np.asarray(identifier)
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(
            f"`{name}` must be an initializer or an array of numbers. Received an array of "
            f"{values.dtype}."
        )
    return InitialValues(name, values)


def are_many(shape: Shape) -> bool:
    """Whether values of `shape` are drawn in a `tf.function`, in order to take less memory.

    Few are drawn eagerly: in a forked process a function never ends if its parent has used
    TensorFlow, whose threads a fork does not copy. Eager ops on small tensors need no threads.
    """
    return bool(np.prod(np.asarray(shape, np.int64)) >= _MANY)


def in_one_piece(initializer: Initializer) -> Initializer:
    """The same initializer, but a random one takes the memory of many values only once.

    Keras draws, scales and shifts them, each into a tensor of its own: three times a weight of
    millions of rows. In a function TensorFlow does all of it in place, if the seed comes from
    outside: while it optimizes a function it computes what depends on constants alone.
    """
    if not isinstance(initializer, _RANDOM):
        return initializer

    def values(shape: Shape, dtype: str | None = None) -> tf.Tensor:
        if not (tf.executing_eagerly() and are_many(shape)):
            return initializer(shape, dtype)
        drawing, seed = copy.copy(initializer), initializer.seed

        def drawn(seed: tf.Tensor) -> tf.Tensor:
            drawing.seed = _GivenSeed(seed)
            return drawing(shape, dtype)

        if isinstance(seed, keras.random.SeedGenerator):
            seed = seed.next()
        else:
            seed = tf.constant([seed, 0], tf.int64)  # as Keras makes it of a number
        # Traced by itself: TensorFlow warns of the fifth call that traces, which each would.
        return tf.function(drawn, autograph=False).get_concrete_function(seed)(seed)

    return values


class _GivenSeed(keras.random.SeedGenerator):
    """A seed that is given as the tensor `[seed, count]`."""

    def __init__(self, value: tf.Tensor) -> None:  # the base would make a variable
        self._value = value

    def next(self, ordered: bool = True) -> tf.Tensor:
        return self._value


def serialize(initializer: Initializer) -> Config | None:
    """Its config; None for an array, which a config cannot hold: the weights do."""
    if isinstance(initializer, InitialValues):
        return None
    return keras.saving.serialize_keras_object(initializer)


def of_embeddings(identifier: InitializerLike | TensorLike | None) -> Initializer:
    """The initializer of class embeddings `[n, dim]` that `identifier` means, see `get`.

    None means uniform with variance `1 / (4 dim)`.
    """
    default = keras.initializers.VarianceScaling(0.25, mode="fan_out", distribution="uniform")
    return get("embeddings_initializer", identifier, default)


def of_biases(identifier: InitializerLike | TensorLike | None) -> Initializer:
    """The initializer of biases `[n]` that `identifier` means, see `get`; None means zeros."""
    return get("bias_initializer", identifier, keras.initializers.Zeros())
