"""Rows of what an initializer gives, without the others."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.layers.initial_values import InitialValues, are_many
from tf_largeout.types import Initializer
from tf_largeout.variables.initializers import constant_initializer

# Of TensorFlow's stateless draws: the key that scrambles seeds, how many numbers come of one
# count of Philox, and how many counts those of a truncated normal have for what they reject.
_SCRAMBLER, _NUMBERS, _COUNTS_TRUNCATED = 0x02461E293EC8F720, 4, 256
_TRUNCATED_STDDEV = 0.87962566103423978  # of a normal number that is within 2
_SAME_EVERYWHERE = (
    keras.initializers.Constant,
    keras.initializers.Zeros,
    keras.initializers.Ones,
)
_Draw = tuple[str, float, float]  # kind, and its two parameters


class PartInitializer:
    """An initializer that gives some rows of what another one gives.

    They are the same numbers to the bit, and no others are drawn: Keras draws by Philox, whose
    numbers can be had from any place on. (But inside of a function, as where `fit` builds a
    model without an input: there all rows are drawn.)

    Args:
        initializer: Gives all rows: a random one of Keras (uniform, normal, truncated normal,
            variance scaling and those of its kind), a constant one, or an array.
        shape: Shape of all rows.
        first: The first row that is wanted.
        name: Name of the argument that the initializer came by, for the message.

    Raises:
        ValueError: If it is another one, or an array of another shape.
    """

    def __init__(
        self, initializer: Initializer, shape: tuple[int, ...], first: int, name: str
    ) -> None:
        self._initializer: Any = initializer
        self._shape, self._first = shape, first
        self._draw = _draw_of(initializer, shape)
        if isinstance(initializer, InitialValues):
            initializer.require_shape(shape)
        elif self._draw is None and not isinstance(initializer, _SAME_EVERYWHERE):
            raise ValueError(
                f"`{name}` must be an array, or draw each number by itself, where num_shards "
                "is above 1: an initializer that is uniform, normal, truncated normal or "
                "constant, or VarianceScaling and its kinds (he_normal, glorot_uniform, ...). "
                f"Received: {initializer!r}. Pass the rows as an array, or take num_shards=1."
            )

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
        of_part = slice(self._first, self._first + shape[0])
        if isinstance(self._initializer, InitialValues):
            rows = self._initializer.values[of_part].astype(dtype)
            in_graph = not tf.executing_eagerly()
            return constant_initializer(rows)(shape) if in_graph else tf.constant(rows)
        if self._draw is None:
            return self._initializer(shape, dtype)
        if not tf.executing_eagerly():  # TensorFlow takes no generator out of a function
            return self._initializer(self._shape, dtype)[of_part]
        if dtype != "float32":
            raise ValueError(
                f"Rows in shards are drawn in float32. Received: dtype={dtype!r}. Take the "
                "dtype policy 'float32', 'mixed_bfloat16' or 'mixed_float16'."
            )
        return _drawn(self._draw, self._initializer.seed, self._first, shape)


def _draw_of(initializer: Initializer, shape: tuple[int, ...]) -> _Draw | None:
    """What an initializer of Keras draws; None for one that is not known."""
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


def _drawn(
    draw: _Draw, seed: int | keras.random.SeedGenerator, first: int, shape: tuple[int, ...]
) -> tf.Tensor:
    """float32 rows from row `first` on, of shape `shape`, in one piece of memory."""
    kind, *parameters = draw
    size = math.prod(shape)
    group, skipped = divmod(first * (size // shape[0]), _NUMBERS)
    counts = _COUNTS_TRUNCATED if kind == "truncated_normal" else 1
    generator = _generator(seed, group * counts)

    def values() -> tf.Tensor:
        numbers = getattr(generator, kind)([skipped + size], *parameters)
        return tf.reshape(numbers[skipped:] if skipped else numbers, shape)

    if not are_many(shape):
        return values()
    return tf.function(values, autograph=False).get_concrete_function()()


def _generator(seed: int | keras.random.SeedGenerator, count: int) -> tf.random.Generator:
    """What draws as TensorFlow's stateless functions do, from a count of Philox on."""
    if isinstance(seed, keras.random.SeedGenerator):
        raise ValueError(
            "An initializer with a SeedGenerator draws other numbers at each call, so no two "
            "shards would agree. Received: seed=SeedGenerator. Give it an integer as its seed, "
            "or take num_shards=1."
        )
    whole_seed = [seed % (2**31 - 2), 0, _SCRAMBLER]  # Keras's remainder
    scrambler = tf.random.Generator.from_state(whole_seed, alg="philox")
    key, high = scrambler.uniform_full_int([2], tf.uint64).numpy()
    state = np.array([count, high, key], np.uint64).view(np.int64)
    return tf.random.Generator.from_state(state, alg="philox")
