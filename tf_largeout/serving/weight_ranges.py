"""How large features may be before scores overflow."""

import functools

import tensorflow as tf

from tf_largeout.layers import ClassOutput

_ROWS_AT_A_TIME = 2**18
# For rounding, and for differences between scores, such as those in a log-softmax.
_MARGIN = 4


def largest_features(layer: ClassOutput) -> float:
    """Returns the sum of `|h_i|` of an example up to which no score can overflow float32.

    Let `r = 1 + sum |h_i|`, where 1 is the factor of the bias. Then neither a score nor a sum
    of some of its terms exceeds `r * layer.score_bound`.

    Args:
        layer: A built layer.

    Raises:
        ValueError: If the class weights contain NaN or infinity.
    """
    slope = layer.score_bound(functools.partial(_largest, layer.name))
    highest = float(tf.float32.max)
    return min(highest, highest / _MARGIN / slope - 1) if slope else highest


def _largest(owner: str, name: str, weight: tf.Tensor) -> float:
    """Returns the largest absolute value, without a copy of all rows."""
    rows = tf.reshape(weight, [-1]) if weight.shape == () else weight
    largest = 0.0
    for first in range(0, rows.shape[0], _ROWS_AT_A_TIME):
        # A slice of a variable would read all rows.
        part = tf.gather(rows, tf.range(first, min(first + _ROWS_AT_A_TIME, rows.shape[0])))
        if not bool(tf.reduce_all(tf.math.is_finite(part))):
            raise ValueError(
                f"The weights of layer '{owner}' must be finite. Received: '{name}' with NaN "
                "or infinity in it. The training has diverged: restore a checkpoint, and lower "
                "the learning rate."
            )
        largest = max(largest, float(tf.reduce_max(tf.abs(part))))
    return largest
