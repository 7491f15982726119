"""Random bits of draws, those of `core/base/philox.h` (Philox4x32-10).

The bits of a draw depend only on the seed and the index of the draw.
"""

import tensorflow as tf

_ALGORITHM = 1  # Philox, in TensorFlow's enumeration
_LAST = 2**64 - 1
_LOW_HALF = 2**32 - 1


def bits_of_draws(seed: tf.Tensor, num_draws: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns 128 bits of each of the draws 0, 1, ...: two uint64 `[num_draws]`."""
    return tf.unstack(_bits(seed, 0, num_draws), axis=1)


def bits_of_last_draw(seed: tf.Tensor) -> tf.Tensor:
    """Returns 64 bits of the draw with the highest index, uint64 `[1]`."""
    return _bits(seed, _LAST, 1)[:, 0]


def _bits(seed: tf.Tensor, first_draw: int, num_draws: int) -> tf.Tensor:
    # The low halves of the two words are the key, the high halves the end of the counter.
    halves = tf.transpose(tf.bitcast(seed, tf.uint32))
    key, counter = tf.unstack(tf.bitcast(halves, tf.uint64))
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[num_draws, 2],
        key=key[tf.newaxis],
        counter=tf.stack([tf.constant(first_draw, tf.uint64), counter]),
        alg=_ALGORITHM,
        dtype=tf.uint64,
    )


def scale_bits(bits: tf.Tensor, limit: int | tf.Tensor) -> tf.Tensor:
    """Maps uint64 bits to int64 in `[0, limit)`: `floor(bits * limit / 2^64)`."""
    # The high half of the product of 128 bits, from four products of halves.
    limit = tf.cast(limit, tf.uint64)
    low_bits, high_bits = _low_half(bits), _high_half(bits)
    low_limit, high_limit = _low_half(limit), _high_half(limit)
    cross = high_bits * low_limit
    middle = _high_half(low_bits * low_limit) + _low_half(low_bits * high_limit) + cross
    high = high_bits * high_limit + _high_half(low_bits * high_limit) + _high_half(middle)
    return tf.cast(high, tf.int64)


def _low_half(words: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(words, tf.constant(_LOW_HALF, tf.uint64))


def _high_half(words: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(words, tf.constant(32, tf.uint64))
