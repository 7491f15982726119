"""Random bits of draws, those of `core/base/philox.h` (Philox4x32-10).

The bits of a draw depend only on the seed and the index of the draw.
"""

import tensorflow as tf

_ALGORITHM = 1  # Philox, in TensorFlow's enumeration
_LAST = 2**64 - 1
_LOW_HALF = 2**32 - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_COLUMNS_OF_BLOCK = 64


def bits_of_draws(seed: tf.Tensor, num_draws: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns 128 bits of each of the draws 0, 1, ...: two uint64 `[num_draws]`."""
    return tf.unstack(_bits(seed, 0, num_draws), axis=1)


def bits_of_last_draw(seed: tf.Tensor) -> tf.Tensor:
    """Returns 64 bits of the draw with the highest index, uint64 `[1]`."""
    return _bits(seed, _LAST, 1)[:, 0]


def _bits(seed: tf.Tensor, first_draw: int, num_draws: int) -> tf.Tensor:
    # The low halves of the two words are the key, the high halves the end of the counter.
    words = tf.bitcast(seed, tf.uint64)
    key, counter = (_joined(*tf.unstack(part(words))) for part in (_low_half, _high_half))
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[num_draws, 2],
        key=key[tf.newaxis],
        counter=tf.stack([tf.constant(first_draw, tf.uint64), counter]),
        alg=_ALGORITHM,
        dtype=tf.uint64,
    )


def bits_of_rows(seed: tf.Tensor, rows: tf.Tensor, num_columns: tf.Tensor) -> tf.Tensor:
    """Returns 16 bits per element of rows of a table, uint32 `[n, num_columns]`.

    Blocks of 64 columns take 8 draws: column 8 p + i takes the p-th 16 bits of draw i.
    """
    # Sizes are int32 and numbers int64: a GPU has all int32 of such sums in host memory.
    num_blocks = -(-num_columns // _COLUMNS_OF_BLOCK)
    blocks = tf.cast(tf.range(num_blocks), tf.int64)
    draws = tf.cast(rows, tf.int64)[:, tf.newaxis] * tf.cast(num_blocks, tf.int64) + blocks
    draws = 8 * draws[..., tf.newaxis] + tf.range(8, dtype=tf.int64)
    halves = []
    for word in _words(tf.cast(seed, tf.uint64), tf.cast(draws, tf.uint64)):
        word = tf.cast(word, tf.int64)
        halves += [word % 2**16, word // 2**16]
    bits = tf.stack(halves, axis=2)  # [n, blocks, 8 parts, 8 draws]
    size = tf.stack([tf.shape(rows)[0], num_blocks * _COLUMNS_OF_BLOCK])
    return tf.cast(tf.reshape(bits, size)[:, :num_columns], tf.uint32)


def _words(seed: tf.Tensor, draws: tf.Tensor) -> list[tf.Tensor]:
    """Returns the four words of 32 bits of draws, uint64 like `draws`."""
    seeds = seed[0], seed[1]
    counter = [_low_half(draws), _high_half(draws), *(_high_half(one) for one in seeds)]
    key = [_low_half(one) for one in seeds]
    for _ in range(10):
        first, second = (m * counter[i] for m, i in zip(_MULTIPLIERS, (0, 2), strict=True))
        counter = [
            tf.bitwise.bitwise_xor(_high_half(second), counter[1]),
            _low_half(second),
            tf.bitwise.bitwise_xor(_high_half(first), counter[3]),
            _low_half(first),
        ]
        for i in range(2):
            counter[2 * i] = tf.bitwise.bitwise_xor(counter[2 * i], key[i])
            key[i] = _low_half(key[i] + tf.constant(_KEY_STEPS[i], tf.uint64))
    return counter


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


def _joined(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_or(low, tf.bitwise.left_shift(high, tf.constant(32, tf.uint64)))


def _low_half(words: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(words, tf.constant(_LOW_HALF, tf.uint64))


def _high_half(words: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(words, tf.constant(32, tf.uint64))
