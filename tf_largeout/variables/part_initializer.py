"""`PartInitializer`: some rows of the values of an initializer."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.types import Initializer
from tf_largeout.variables.initializers import (
    ArrayInitializer,
    constant_initializer,
    is_large,
)

# Constants of TensorFlow's stateless random ops: the key that scrambles seeds, the numbers per
# Philox count, and the counts per sample of a truncated normal, which rejects some numbers.
_SCRAMBLER, _NUMBERS_PER_COUNT, _COUNTS_TRUNCATED = 0x02461E293EC8F720, 4, 256
_TRUNCATED_STDDEV = 0.87962566103423978  # of a standard normal number between -2 and 2
_CONSTANT = (
    keras.initializers.Constant,
    keras.initializers.Zeros,
    keras.initializers.Ones,
)
_Distribution = tuple[str, float, float]  # method of tf.random.Generator, and two parameters


class PartInitializer:
    """An initializer that returns some rows of the values of another initializer.

    The rows are bit-identical to those of the other initializer. Only these rows are drawn:
    Keras draws from the Philox sequence, which can start at any position. (In a function, for
    example when `fit` builds a model without an input, all rows are drawn.)

    Args:
        initializer: The initializer of all rows: a random Keras initializer (uniform, normal,
            truncated normal, variance scaling and its subclasses), a constant, or an array.
        shape: Shape of all rows.
        first: The first row to return.
        name: Name of the argument that received the initializer, for the message.

    Raises:
        ValueError: If it is another initializer, or an array of another shape.
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
    """Returns float32 rows of `shape`, beginning with row `first`, without copies."""
    method, *parameters = distribution
    size = math.prod(shape)
    group, skipped = divmod(first * (size // shape[0]), _NUMBERS_PER_COUNT)
    counts = _COUNTS_TRUNCATED if method == "truncated_normal" else 1
    generator = _generator(seed, group * counts)

    def values() -> tf.Tensor:
        numbers = getattr(generator, method)([skipped + size], *parameters)
        return tf.reshape(numbers[skipped:] if skipped else numbers, shape)

    if not is_large(shape):
        return values()
    return tf.function(values, autograph=False).get_concrete_function()()


def _generator(seed: int | keras.random.SeedGenerator, count: int) -> tf.random.Generator:
    """Returns a generator that draws like TensorFlow's stateless ops, from a Philox counter."""
    if isinstance(seed, keras.random.SeedGenerator):
        raise ValueError(
            "The seed of an initializer of sharded weights must be an integer: a SeedGenerator "
            "gives each shard another seed. Received: seed=SeedGenerator. Pass an integer, or "
            "use num_shards=1."
        )
    whole_seed = [seed % (2**31 - 2), 0, _SCRAMBLER]  # Keras's remainder
    scrambler = tf.random.Generator.from_state(whole_seed, alg="philox")
    key, high = scrambler.uniform_full_int([2], tf.uint64).numpy()
    state = np.array([count, high, key], np.uint64).view(np.int64)
    return tf.random.Generator.from_state(state, alg="philox")
