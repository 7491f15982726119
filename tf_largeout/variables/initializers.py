"""Initializers of weights: constants, arrays, and parts of those of Keras, without copies."""

import copy
import math
from collections.abc import Callable
from typing import Any

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
    """An initializer that returns an array, which the argument `name` received."""

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
    """Returns an initializer that returns the numpy array `value`, and captures no tensor.

    Otherwise, if a function creates a variable in its first trace, TensorFlow runs all
    initializers in the first call, while other operations may already read shapes. Gradients of
    RNN layers then fail at random ("AddN must have the same size and shape").
    """

    def initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(lambda: value, [], value.dtype), shape)

    return initializer


def zeros_initializer(shape: Shape, dtype: tf.DType | str | None = None) -> tf.Tensor:
    """Returns zeros, on the device of the variable: GPUs lack `tf.zeros` of uint32."""
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
    """Returns an initializer as `keras.initializers.get` does, also for an array of numbers.

    Raises a ValueError, with `name`, if it is neither, or the array is not finite in float32.
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
    largest = np.finfo(np.float32).max
    # Without a copy of the array. NaN fails both comparisons.
    if values.size and not (values.min() >= -largest and values.max() <= largest):
        raise ValueError(
            f"An array in `{name}` must be finite in float32. Received: numbers from "
            f"{values.min()} to {values.max()}. Remove NaN and infinity, and divide larger "
            "numbers."
        )
    return ArrayInitializer(name, values)


def get_for_embeddings(identifier: InitializerLike | TensorLike | None) -> Initializer:
    """Returns that of class embeddings, by default uniform of variance `1 / (4 dim)`."""
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

    In a process forked after use of TensorFlow, functions never return: a fork has no threads.
    """
    return bool(np.prod(np.asarray(shape, np.int64)) >= _LARGE)


def without_copies(initializer: Initializer) -> Initializer:
    """Returns the same initializer, but a random one does not copy a large tensor.

    Keras's take three times the memory of the weight. In a function, TensorFlow scales and
    shifts in place; it would compute the values early if the seed were not an argument.
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


# Constants of TensorFlow's stateless random ops: the key that scrambles seeds, the numbers per
# Philox count, and the counts per sample of a truncated normal, which rejects some numbers.
_SCRAMBLER, _NUMBERS_PER_COUNT, _COUNTS_TRUNCATED = 0x02461E293EC8F720, 4, 256
_TRUNCATED_STDDEV = 0.87962566103423978  # of a standard normal number between -2 and 2
_CONSTANT = keras.initializers.Constant, keras.initializers.Zeros, keras.initializers.Ones
_Distribution = tuple[str, float, float]  # method of tf.random.Generator, and two parameters


class PartInitializer:
    """Returns the rows from `first` on of the values, of `shape`, of another initializer.

    The rows are bit-identical, and only they are drawn: the Philox sequence of Keras can start
    at any position. (In a function, for example when `fit` builds a model without an input, all
    rows are drawn.) A ValueError is raised for an initializer other than Keras's random ones
    (uniform, normal, truncated normal, variance scaling), a constant or an array of `shape`.
    """

    def __init__(
        self, initializer: Initializer, shape: tuple[int, ...], first: int, name: str
    ) -> None:
        self._initializer: Any = initializer
        self._shape, self._first = shape, first
        self._distribution = _distribution_of(initializer, shape)
        if isinstance(initializer, ArrayInitializer):
            initializer.require_shape(shape)
        elif self._distribution is None and not isinstance(initializer, _CONSTANT):
            raise ValueError(
                f"`{name}` must be an array or a known initializer if num_shards is above 1, "
                "because each shard draws its own rows: uniform, normal, truncated normal, "
                "constant, or VarianceScaling and its subclasses (he_normal, glorot_uniform, "
                f"...). Received: {initializer!r}. Pass the rows as an array, or use "
                "num_shards=1."
            )

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
        part = slice(self._first, self._first + shape[0])
        if isinstance(self._initializer, ArrayInitializer):
            rows = self._initializer.values[part].astype(dtype)
            in_graph = not tf.executing_eagerly()
            return constant_initializer(rows)(shape) if in_graph else tf.constant(rows)
        if self._distribution is None:
            return self._initializer(shape, dtype)
        if not tf.executing_eagerly():  # a tf.random.Generator needs a variable
            return self._initializer(self._shape, dtype)[part]
        if dtype != "float32":
            raise ValueError(
                f"Sharded weights must be float32. Received: dtype={dtype!r}. Use the dtype "
                "policy 'float32', 'mixed_bfloat16' or 'mixed_float16'."
            )
        return _draw(self._distribution, self._initializer.seed, self._first, shape)


def has_parts(initializer: Initializer) -> bool:
    """Returns whether a `PartInitializer` can return the parts of `initializer` one by one."""
    if isinstance(initializer, (ArrayInitializer, *_CONSTANT)):
        return True
    is_known = _distribution_of(initializer, (1, 1)) is not None
    return is_known and isinstance(getattr(initializer, "seed", None), int)


def _distribution_of(initializer: Initializer, shape: tuple[int, ...]) -> _Distribution | None:
    """Returns the distribution of a random Keras initializer; None for other initializers."""
    cls = keras.initializers
    if isinstance(initializer, cls.RandomUniform):
        return "uniform", initializer.minval, initializer.maxval
    if isinstance(initializer, cls.RandomNormal):
        return "normal", initializer.mean, initializer.stddev
    if isinstance(initializer, cls.TruncatedNormal):
        return "truncated_normal", initializer.mean, initializer.stddev
    if not isinstance(initializer, cls.VarianceScaling):
        return None
    fan_in, fan_out = shape[0], shape[-1]
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    variance = initializer.scale / max(1.0, fans[initializer.mode])
    if initializer.distribution == "uniform":
        limit = math.sqrt(3 * variance)
        return "uniform", -limit, limit
    if initializer.distribution == "untruncated_normal":
        return "normal", 0.0, math.sqrt(variance)
    return "truncated_normal", 0.0, math.sqrt(variance) / _TRUNCATED_STDDEV


def _draw(
    distribution: _Distribution,
    seed: int | keras.random.SeedGenerator,
    first: int,
    shape: tuple[int, ...],
) -> tf.Tensor:
    """Returns float32 rows of `shape`, beginning with row `first`, without copies.

    They are those of TensorFlow's stateless ops, from a counter of the Philox sequence on.
    """
    if isinstance(seed, keras.random.SeedGenerator):
        raise ValueError(
            "The seed of an initializer of sharded weights must be an integer: a SeedGenerator "
            "gives each shard another seed. Received: seed=SeedGenerator. Pass an integer, or "
            "use num_shards=1."
        )
    method, *parameters = distribution
    size = math.prod(shape)
    group, skipped = divmod(first * (size // shape[0]), _NUMBERS_PER_COUNT)
    count = group * (_COUNTS_TRUNCATED if method == "truncated_normal" else 1)
    whole_seed = [seed % (2**31 - 2), 0, _SCRAMBLER]  # Keras's remainder
    scrambler = tf.random.Generator.from_state(whole_seed, alg="philox")
    key, high = scrambler.uniform_full_int([2], tf.uint64).numpy()
    state = np.array([count, high, key], np.uint64).view(np.int64)
    generator = tf.random.Generator.from_state(state, alg="philox")

    def values() -> tf.Tensor:
        numbers = getattr(generator, method)([skipped + size], *parameters)
        return tf.reshape(numbers[skipped:] if skipped else numbers, shape)

    if not is_large(shape):
        return values()
    return tf.function(values, autograph=False).get_concrete_function()()
