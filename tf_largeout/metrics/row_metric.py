"""The base class of all metrics for a `LargeOutput`."""

import keras
import tensorflow as tf

from tf_largeout.lazy_logits import LazyLogits, lazy_logits


class RowMetric(keras.metrics.Metric):
    """A weighted ratio of two sums over the rows of all batches.

    Subclasses write `row_terms`. The sums are float64: exact for counts far above 2^24.

    In `evaluate` the metrics and the loss share one exact pass over the classes. A training
    step does no work that grows with the number of classes: what a metric shows then, if
    anything, is said at each.

    A row whose labels are all -1 has weight 0. The labels of a row are a set: a class that is
    given twice counts once.

    Call arguments:
        y_true: Integer class ids: `[batch]` or, padded with -1, `[batch, max_labels]`; with
            further dimensions between where the features have them.
        y_pred: The direct output of a `LargeOutput`.
        sample_weight: Optional weights that broadcast to the leading dimensions.

    Raises:
        ValueError: If `y_pred` is no direct output of a `LargeOutput`, or the labels are not
            integers or do not fit the features in shape.
    """

    def __init__(self, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.numerator = self._sum("numerator")
        self.denominator = self._sum("denominator")

    def row_terms(self, lazy: LazyLogits, labels: tf.Tensor, valid: tf.Tensor):
        """What each row adds to the two sums.

        Args:
            lazy: The lazy logits of `B` rows.
            labels: int64 `[B, L]`, padded with -1.
            valid: bool `[B, L]`, False at padding and at repeats of a label.

        Returns:
            Two tensors that broadcast to `[B]`; or None where this step has no such figure.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `row_terms`.")

    def update_state(self, y_true, y_pred, sample_weight=None):
        lazy = lazy_logits(y_pred, asked_by=type(self).__name__)
        if lazy is None:
            return
        labels = lazy.label_matrix(y_true)
        valid = lazy.distinct_labels(labels)
        terms = self.row_terms(lazy, labels, valid)
        if terms is None:
            return
        weights = _row_weights(lazy, valid, sample_weight, getattr(y_pred, "_keras_mask", None))
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            # A row of weight 0 adds nothing, whatever its numbers.
            weighted = tf.where(weights > 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self):
        return tf.cast(tf.math.divide_no_nan(*self._sums()), self.dtype)

    def _sums(self):
        return tf.convert_to_tensor(self.numerator), tf.convert_to_tensor(self.denominator)

    def _sum(self, name):
        return self.add_variable((), "zeros", dtype="float64", name=name)


def _row_weights(lazy, valid, sample_weight, mask):
    """The weights of the rows, float64 `[B]`, 0 where there is no label."""
    weights = tf.cast(tf.reduce_any(valid, axis=-1), tf.float64)
    leading = tf.shape(lazy.features)[:-1]
    for factor in (sample_weight, mask):
        if factor is None:
            continue
        factor = tf.cast(tf.convert_to_tensor(factor), tf.float64)
        if factor.shape.rank == lazy.features.shape.rank and factor.shape[-1] == 1:
            factor = tf.squeeze(factor, -1)
        factor = tf.reshape(factor, _padded_shape(factor, lazy.features.shape.rank - 1))
        weights *= tf.reshape(tf.broadcast_to(factor, leading), [-1])
    return weights


def _padded_shape(factor, rank):
    """The shape of `factor` with dimensions of 1 behind, as sample weights broadcast."""
    return tf.concat([tf.shape(factor), tf.ones([rank - factor.shape.rank], tf.int32)], 0)
