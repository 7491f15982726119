"""`LogitForm`: how features, class rows and biases become the scores that rank the classes."""

import dataclasses
from typing import Literal

import keras
import tensorflow as tf

Ranking = Literal["logit", "absolute", "taylor"]


@dataclasses.dataclass(frozen=True, eq=False)
class LogitForm:
    """The scores of classes, from features h, class rows w_c and biases b_c.

        o_c = scale <w_c, h> + b_c    with w_c and h scaled to length 1 if `unit_rows`
        s_c = o_c, |o_c| or |1 + o_c|    by `rank_by`
        cap * tanh(s_c / cap)    with a `cap`

    The cap does not change the order of the classes. So searches and ranks leave it out, and
    only the scores that they return are capped.

    Attributes:
        unit_rows: Whether the logits are cosines, times the scale.
        scale: A number, or a variable that has the log of it.
        cap: A number above 0, or None.
        rank_by: "logit", "absolute" or "taylor", as above.

    References:
        Gemma Team 2024, "Gemma 2: improving open language models at a practical size",
        section 2 (logit soft-capping).
    """

    unit_rows: bool = False
    scale: float | keras.Variable = 1.0
    cap: float | None = None
    rank_by: Ranking = "logit"

    def scale_value(self) -> float | tf.Tensor:
        """Returns the scale; float32 if a variable has its log."""
        if isinstance(self.scale, keras.Variable):
            return tf.exp(tf.convert_to_tensor(self.scale.value))
        return self.scale

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """Returns `scale * h`: inner products with the class rows, and biases, are the logits.

        Args:
            features: Float `[..., dim]`.
        """
        if not self.unit_rows and isinstance(self.scale, float) and self.scale == 1:
            return features
        queries = tf.cast(features, tf.float32)
        if self.unit_rows:
            queries = unit_length(queries)
        return tf.cast(queries * self.scale_value(), features.dtype)

    def scores(self, logits: tf.Tensor, padded: bool = False) -> tf.Tensor:
        """Returns the scores of logits.

        Args:
            logits: Float, of any shape.
            padded: Whether the lowest float marks padding, which stays as it is.
        """
        if self.rank_by != "logit":
            shift = 1.0 if self.rank_by == "taylor" else 0.0
            scores = tf.abs(logits + shift) if shift else tf.abs(logits)
            lowest = logits.dtype.min
            logits = tf.where(logits > lowest, scores, lowest) if padded else scores
        return self.capped(logits)

    def capped(self, scores: tf.Tensor) -> tf.Tensor:
        """Applies the cap, if there is one; the lowest float and -inf stay as they are."""
        if self.cap is None:
            return scores
        capped = self.cap * tf.tanh(scores / self.cap)
        return tf.where(scores > scores.dtype.min, capped, scores)


def absolute_or_lowest(logits: tf.Tensor) -> tf.Tensor:
    """Returns `|logits|`, but leaves the lowest float, which marks padding, as it is."""
    return LogitForm(rank_by="absolute").scores(logits, padded=True)


def unit_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns vectors of length 1, `[..., dim]`; vectors of zeros stay zeros.

    As `tf.math.l2_normalize`, with its epsilon of 1e-12, but without overflow for large values.
    """
    return vectors * inverse_length(vectors)[..., tf.newaxis]


def inverse_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns `1 / max(|v|, 1e-6)`, `[...]`."""
    # Dividing by a constant first does not change a direction, but squares cannot overflow.
    largest = tf.maximum(tf.reduce_max(tf.abs(tf.stop_gradient(vectors)), axis=-1), 1)
    squares = tf.reduce_sum(tf.square(vectors / largest[..., tf.newaxis]), axis=-1)
    return tf.math.rsqrt(tf.maximum(squares, 1e-12)) / largest
