"""The base class of all metrics for our output layers."""

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of
from tf_largeout.tags.example_weights import per_row
from tf_largeout.tags.output_tag import OutputTag, tag_of
from tf_largeout.types import DTypeLike, TensorLike


class RowMetric(keras.metrics.Metric):
    """A weighted ratio of two sums over the rows of all batches.

    Subclasses write `row_terms`. The sums are float64: exact for counts far above 2^24.

    In `evaluate` the metrics and the loss share one exact pass over the classes. A training
    step does no work that grows with the number of classes: what a metric shows then, if
    anything, is said at each.

    A row whose labels are all -1 has weight 0, and a row of weight 0 adds nothing, whatever its
    numbers. The labels of a row are a set: a class that is given twice counts once. Where
    nothing is known, because no step could tell or the weights of all rows add up to 0, the
    result is NaN.

    Args:
        name: Name of the metric.
        dtype: Type of the result, as in `keras.metrics.Metric`. (The sums are float64.)

    Call arguments:
        y_true: Integer class ids as the losses take them: `[batch]` or, padded with -1 or
            ragged, `[batch, max_labels]`; with further dimensions between where the features
            have them.
        y_pred: The direct output of an output layer of ours.
        sample_weight: Optional weights that broadcast to the leading dimensions, aligned in
            front: those of sequences `[batch, time, dim]` are `[batch]` or `[batch, time]`.

    Raises:
        ValueError: If `y_pred` is no direct output of such a layer, the labels are not
            integers, or they or the weights do not fit the features in shape.
    """

    _direction = "up"  # what Keras's callbacks call an improvement where their mode is "auto"

    def __init__(self, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.numerator = self._sum("numerator")
        self.denominator = self._sum("denominator")

    def row_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        """What each row adds to the two sums.

        Args:
            tag: The tag of `B` rows.
            labels: int64 `[B, L]`, padded with -1.
            valid: bool `[B, L]`, False at padding and at repeats of a label.

        Returns:
            Two tensors that broadcast to `[B]`; or None where this step has no such figure.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `row_terms`.")

    def update_state(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> None:
        tag = tag_of(y_pred, type(self).__name__, OutputTag)
        if tag is None:
            return
        labels = tag.label_matrix(y_true)
        valid = tag.distinct_labels(labels)
        terms = self.row_terms(tag, labels, valid)
        if terms is None:
            return
        weights = _row_weights(tag, valid, sample_weight, mask_of(y_pred))
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            weighted = tf.where(weights != 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self) -> tf.Tensor:
        return tf.cast(self._ratio(), self.dtype)

    def _ratio(self) -> tf.Tensor:
        numerator = tf.convert_to_tensor(self.numerator)
        denominator = tf.convert_to_tensor(self.denominator)
        nothing = tf.constant(float("nan"), tf.float64)
        return tf.where(denominator == 0, nothing, numerator / denominator)

    def _sum(self, name: str) -> keras.Variable:
        return self.add_variable((), "zeros", dtype="float64", name=name)


def _row_weights(
    tag: OutputTag, valid: tf.Tensor, sample_weight: TensorLike | None, mask: tf.Tensor | None
) -> tf.Tensor:
    """The weights of the rows, float64 `[B]`, 0 where there is no label or the mask is 0."""
    counts = tf.reduce_any(valid, axis=-1)
    if mask is not None:
        counts &= _flat(mask, tag, "bool")
    weights = tf.ones([], tf.float64)
    if sample_weight is not None:
        weights = _flat(sample_weight, tag, "float64")
    return tf.where(counts, weights, 0)


def _flat(weights: TensorLike, tag: OutputTag, dtype: str) -> tf.Tensor:
    return tf.reshape(per_row(weights, tag.features, dtype), [-1])
