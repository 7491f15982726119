"""Random numbers of `tf.random` that are the same in steps that XLA compiles.

Under XLA, `tf.random.stateless_uniform` returns other numbers for the same seed. Only its
integers of all bits are the same, so there these functions make the numbers of them.
"""

import tensorflow as tf

from tf_largeout.keras_internals import running_step

_MANTISSA = 52  # bits of the mantissa of a float64
_PHILOX = "philox"


def uniform_floats(shape: tf.Tensor | list[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Returns float64 numbers in [0, 1), as `tf.random.stateless_uniform`."""
    if not running_step().is_compiled:
        return tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg=_PHILOX)
    bits, half = _bits(shape, seed), tf.constant(32, tf.uint64)
    high = tf.bitwise.bitwise_and(bits, tf.constant(2 ** (_MANTISSA - 32) - 1, tf.uint64))
    low = tf.bitwise.right_shift(bits, half)
    mantissa = tf.bitwise.bitwise_or(tf.bitwise.left_shift(high, half), low)
    return tf.cast(tf.cast(mantissa, tf.int64), tf.float64) * 2.0**-_MANTISSA


def uniform_ids(
    shape: tf.Tensor | list[int | tf.Tensor], seed: tf.Tensor, limit: int
) -> tf.Tensor:
    """Returns int64 numbers in [0, limit), as `tf.random.stateless_uniform`."""
    if not running_step().is_compiled:
        return tf.random.stateless_uniform(
            shape, seed, maxval=limit, dtype=tf.int64, alg=_PHILOX
        )
    return tf.cast(_bits(shape, seed) % tf.constant(limit, tf.uint64), tf.int64)


def two_seeds(seed: tf.Tensor) -> list[tf.Tensor]:
    """Returns two seeds made of one, int64 `[2]`, as `stateless_split`."""
    if not running_step().is_compiled:
        return tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    return tf.unstack(tf.bitcast(_bits([2, 2], seed), tf.int64))


def _bits(shape: tf.Tensor | list[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg=_PHILOX
    )
