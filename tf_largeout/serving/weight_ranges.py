"""Whether class weights are finite, and how large features may be before scores overflow."""

from collections.abc import Iterator

import tensorflow as tf

from tf_largeout.layers import ClassOutput, FactoredOutput

_ROWS_AT_A_TIME = 2**18
# For rounding, and for differences between scores, such as those in a log-softmax.
_MARGIN = 4


def require_finite(layer: ClassOutput) -> None:
    """Raises a ValueError where the class weights hold NaN or infinity."""
    for name, weight in _weights(layer).items():
        for part in _parts(weight):
            if not bool(tf.reduce_all(tf.math.is_finite(part))):
                raise ValueError(
                    f"The weights of layer '{layer.name}' must be finite. Received: "
                    f"'{name}' with NaN or infinity in it. Training has lost them: go back to "
                    "a checkpoint, and lower the learning rate."
                )


def largest_features(layer: ClassOutput) -> float:
    """The sum of `|h_i|` of a row up to which no score can overflow float32.

    With `r = 1 + sum |h_i|`, where 1 is the factor of the bias, no score, and no sum of some
    of its terms, exceeds `r * slope`. The slope is the largest class weight. In a
    `FactoredOutput`, whose weights are `V U + 1 omega'`, it is `width * max|V| * max|U| +
    max|omega|`.

    Args:
        layer: A built layer with finite weights.
    """
    largest = {name: _magnitude(weight) for name, weight in _weights(layer).items()}
    slope = max(largest.values())
    if isinstance(layer, FactoredOutput):
        width = int(_weights(layer)["mixing"].shape[0])
        slope = width * largest["vectors"] * largest["mixing"] + largest["offset"]
    highest = float(tf.float32.max)
    return min(highest, highest / _MARGIN / slope - 1) if slope else highest


def _weights(layer: ClassOutput) -> dict[str, tf.Variable]:
    # What a sampler packs is NaN where it has no class.
    return {
        weight.name: weight.value
        for weight in layer.weights
        if weight.dtype.startswith("float") and not weight.name.startswith("sampler_")
    }


def _parts(weight: tf.Variable) -> Iterator[tf.Tensor]:
    """The rows of a weight, some at a time: nothing copies the weight as a whole."""
    rows = tf.reshape(weight, [-1]) if weight.shape == () else weight
    for first in range(0, rows.shape[0], _ROWS_AT_A_TIME):
        yield rows[first : first + _ROWS_AT_A_TIME]


def _magnitude(weight: tf.Variable) -> float:
    return max(float(tf.reduce_max(tf.abs(part))) for part in _parts(weight))
