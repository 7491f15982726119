"""Changes of the basis of V in a factored output layer.

See `custom_ops/core/factored_output/factored_output_folds.h`, which defines the log and the
three kinds of folds, and `factored_output_stabiliser.cc`, which decides about them.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.stock import errors

MOST_PER_STEP = 4
ROWS_AT_ONCE = 2**13
_LEAST_ROWS = 1 + 2 * MOST_PER_STEP
_NEGLIGIBLE = 2.0**-48
# Limits of the means of the squares of all singular values of U, and of their inverses.
_MOST, _NEAR, _LEAST = 225.0, 9.0, 0.25


def check(shape: tf.TensorShape, width: int) -> None:
    """Raises an InvalidArgumentError if the shape is not that of a log."""
    if not shape.is_compatible_with([None, width + 1]) or (shape[0] or 0) < _LEAST_ROWS:
        errors.fail(
            "folds must be double [capacity + 1, width + 1] with at least "
            f"{_LEAST_ROWS} rows and width {width}, got {shape}"
        )


def capacity(log: tf.Tensor) -> int:
    """Returns the number of folds that fit into the log."""
    return log.shape[0] - 1


def count(log: tf.Tensor) -> tf.Tensor:
    """Returns the number of folds in the log, int32."""
    number = tf.where(log[0, 0] > 0, log[0, 0], 0.0)
    return tf.cast(tf.minimum(number, float(capacity(log))), tf.int32)


class _Fold(NamedTuple):
    """A fold of a log: `number` encodes its kind and place; `factors` `[width]` give G."""

    number: tf.Tensor
    factors: tf.Tensor

    def times(self, rows: tf.Tensor, negligible: tf.Tensor | float) -> tf.Tensor:
        """Returns rows `[n, width]` times G.

        In a small direction, a component of up to `negligible` `[n, 1]` does not change the
        other numbers.
        """
        width = float(self.factors.shape[0])
        is_all = ~((self.number >= -width) & (self.number < width))
        number = tf.where(~is_all, self.number, 0.0)
        place = tf.cast(tf.where(number < 0, -1 - number, number), tf.int32)
        is_place = tf.range(self.factors.shape[0]) == place
        along = tf.gather(rows, [place], axis=1)
        moved = tf.where(tf.abs(along) > negligible, rows + along * self.factors, rows)
        small = tf.where(is_place, along * self.factors, moved)
        dots = tf.linalg.matvec(rows, self.factors)[:, tf.newaxis]
        large = tf.where(is_place, dots, rows)
        folded = tf.where(number < 0, large, small)
        return tf.where(is_all, rows * self.factors[0], folded)


def applied(rows: tf.Tensor, log: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
    """Applies the folds that rows lack, float64 `[n, width]`; `seen` is uint32 `[n]`."""
    seen = tf.cast(tf.minimum(tf.cast(seen, tf.int64), capacity(log)), tf.int32)[:, tf.newaxis]
    size = tf.reduce_sum(tf.abs(rows), axis=1, keepdims=True)

    def take(i: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row = tf.gather(log, i + 1)
        fold = _Fold(row[0], row[1:])
        lacks = (seen <= i) & (size > 0)
        return i + 1, tf.where(lacks, fold.times(rows, _NEGLIGIBLE * size), rows)

    end = count(log)
    first = tf.reduce_min(tf.concat([[[end]], seen], axis=0))
    return tf.while_loop(lambda i, _: i < end, take, (first, rows))[1]


def applied_in_blocks(rows: tf.Tensor, log: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
    """Returns a copy of rows `[n, width]`, of any float dtype, after all folds."""
    count = tf.shape(rows)[0]
    blocks = tf.TensorArray(
        rows.dtype, 0, dynamic_size=True, infer_shape=False, element_shape=[None, rows.shape[1]]
    )

    def add(i: tf.Tensor, blocks: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        block = slice(i * ROWS_AT_ONCE, tf.minimum((i + 1) * ROWS_AT_ONCE, count))
        folded = applied(tf.cast(rows[block], tf.float64), log, seen[block])
        return i + 1, blocks.write(i, tf.cast(folded, rows.dtype))

    going = lambda i, _: i * ROWS_AT_ONCE < count  # noqa: E731
    blocks = tf.while_loop(going, add, (0, blocks), parallel_iterations=1)[1]
    return tf.ensure_shape(blocks.concat(), rows.shape)


def stabilised(
    mixing: tf.Tensor, inverse: tf.Tensor, log: tf.Tensor, enabled: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Folds U and its inverse, `[width, width]`, if singular values of U are far from 1.

    The log must have room for `MOST_PER_STEP` more folds. Returns the new U, inverse and log.
    """

    def going(
        i: tf.Tensor, most: tf.Tensor, mixing: tf.Tensor, inverse: tf.Tensor, _: tf.Tensor
    ) -> tf.Tensor:
        squares = [_square(mixing), _square(inverse)]
        width = float(mixing.shape[0])
        outside = (tf.minimum(*squares) < _LEAST * width) | (
            tf.maximum(*squares) > most * width
        )
        return enabled & (i < MOST_PER_STEP) & outside

    def fold(
        i: tf.Tensor, most: tf.Tensor, mixing: tf.Tensor, inverse: tf.Tensor, log: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        least = _LEAST * float(mixing.shape[0])
        is_all = (_square(mixing) < least) | (_square(inverse) < least)
        found, new_mixing, new_inverse, new_fold = tf.cond(
            is_all, lambda: _fold_all(mixing, inverse), lambda: _fold_one(mixing, inverse)
        )
        number = count(log)
        start = tf.concat([[tf.cast(number + 1, tf.float64)], log[0, 1:]], axis=0)
        places = [[0], [number + 1]]
        new_log = tf.tensor_scatter_nd_update(log, places, [start, new_fold])
        mixing, inverse, log = (
            tf.where(found, new, old)
            for new, old in ((new_mixing, mixing), (new_inverse, inverse), (new_log, log))
        )
        near = tf.constant(_NEAR, tf.float64)
        return tf.where(found, i + 1, MOST_PER_STEP), near, mixing, inverse, log

    start = (0, tf.constant(_MOST, tf.float64), mixing, inverse, log)
    return tf.while_loop(going, fold, start)[2:]


def _fold_all(mixing: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Scales U by a power of 2. Returns whether it did, and the new values and fold."""
    width = mixing.shape[0]
    of_mixing, of_inverse = _square(mixing), _square(inverse)
    is_small = of_mixing < _LEAST * width
    mean = tf.where(is_small, of_mixing / width, width / of_inverse)
    two = tf.constant(2.0, tf.float64)
    factor = tf.pow(two, -tf.round(0.5 * tf.math.log(mean) / tf.math.log(two)))
    found = tf.math.is_finite(factor) & tf.math.is_finite(1 / factor)
    number = tf.constant([float(width)], tf.float64)
    fold = tf.concat([number, [1 / factor], tf.zeros([width - 1], tf.float64)], axis=0)
    return found, mixing * factor, inverse / factor, fold


def _fold_one(mixing: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Corrects one direction of U. Returns whether it did, and the new values and fold."""
    is_small = _square(inverse) > _square(mixing)
    x = tf.where(is_small, _small_direction(inverse), _large_direction(mixing))
    y = tf.linalg.matvec(mixing, x, transpose_a=True)
    length = tf.sqrt(tf.reduce_sum(tf.square(y)))
    found = (length > 0) & tf.math.is_finite(length)
    place = tf.argmax(tf.abs(x), output_type=tf.int32)
    is_place = tf.range(x.shape[0]) == place
    row, largest = mixing[place], x[place]
    small = tf.where(is_place[:, tf.newaxis], y / length, mixing)
    large = mixing - (x / largest)[:, tf.newaxis] * row
    large = tf.where(is_place[:, tf.newaxis], row / (length * largest), large)
    mixing = tf.where(is_small, small, large)
    factors = tf.where(is_small, tf.where(is_place, length, -x) / largest, length * x)
    number = tf.cast(tf.where(is_small, place, -1 - place), tf.float64)
    inverse = _Fold(number, factors).times(inverse, 0.0)
    # Row `place` of U times the inverse becomes a row of I. If a direction of U has shrunk by a
    # factor, the errors of the inverse along it have grown by this factor.
    error = tf.linalg.matvec(inverse, mixing[place], transpose_a=True)
    error -= tf.cast(is_place, tf.float64)
    inverse -= tf.gather(inverse, [place], axis=1) * error
    return found, mixing, inverse, tf.concat([[number], factors], axis=0)


def _small_direction(inverse: tf.Tensor) -> tf.Tensor:
    """Approximates the left singular vector of the smallest singular value of U."""
    column = tf.argmax(tf.reduce_sum(tf.square(inverse), axis=0))
    y = _unit(tf.gather(inverse, column, axis=1))
    return _unit(tf.linalg.matvec(inverse, y, transpose_a=True))


def _large_direction(mixing: tf.Tensor) -> tf.Tensor:
    """Approximates the left singular vector of the largest singular value of U."""
    row = tf.argmax(tf.reduce_sum(tf.square(mixing), axis=1))
    return _unit(tf.linalg.matvec(mixing, _unit(mixing[row])))


def _unit(vector: tf.Tensor) -> tf.Tensor:
    return vector / tf.sqrt(tf.reduce_sum(tf.square(vector)))


def _square(matrix: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(matrix))
