"""The base class of all losses for a `LargeOutput`."""

import keras
import tensorflow as tf

from tf_largeout.lazy_logits import LazyLogits, lazy_logits
from tf_largeout.losses.cross_entropy import softmax_cross_entropy
from tf_largeout.row_weights import per_row


class LargeOutputLoss(keras.losses.Loss):
    """A loss that scores only the classes it needs.

    Subclasses write `row_losses`. Outside of training (`evaluate`, `validation_data`) every
    one reports the exact softmax loss over all classes, so that they can be compared; one that
    cannot writes `evaluation_losses` too.

    A row whose labels are all -1 has weight 0, as with `sample_weight`: it counts in the size
    of the batch that "sum_over_batch_size" divides by.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.

    Call arguments:
        y_true: Integer class ids: `[batch]` or, padded with -1 or ragged, `[batch,
            max_labels]`; with further dimensions between where the features have them. A class
            that is given twice counts twice, as in `tf.nn`. Not multi-hot: a matrix of 0 and 1
            alone with one column per class is refused.
        y_pred: The direct output of a `LargeOutput`.
        sample_weight: Optional weights that broadcast to the leading dimensions, aligned in
            front: those of sequences `[batch, time, dim]` are `[batch]` or `[batch, time]`.

    Raises:
        ValueError: If `y_pred` is no direct output of a `LargeOutput`, the labels are not
            integers, or they or the weights do not fit the features in shape.
        tf.errors.InvalidArgumentError: If a label is out of range, the labels are multi-hot, or
            a feature is not finite.
    """

    def __init__(self, reduction="sum_over_batch_size", name=None, dtype=None):
        super().__init__(reduction=reduction, name=name, dtype=dtype)

    def row_losses(self, lazy: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        """The training loss of each row.

        Args:
            lazy: The lazy logits of `B` rows.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B]`, 0 for a row without labels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `row_losses`.")

    def evaluation_losses(self, lazy: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        """What is reported for each row outside of training, as `row_losses` are given."""
        return exact_row_losses(lazy, labels)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Overridden because Keras would cast the labels to float32, wrong above 2^24.
        lazy = lazy_logits(y_pred, asked_by=type(self).__name__)
        if lazy is None:
            losses = tf.reduce_sum(y_pred, axis=-1)
        else:
            labels = lazy.label_matrix(y_true)
            compute = self.row_losses if lazy.training else self.evaluation_losses
            losses = tf.reshape(compute(lazy, labels), tf.shape(lazy.features)[:-1])
            losses = tf.ensure_shape(losses, lazy.features.shape[:-1])
        if getattr(y_pred, "_keras_mask", None) is not None:
            losses._keras_mask = y_pred._keras_mask
        if sample_weight is not None:
            sample_weight = per_row(sample_weight, y_pred, losses.dtype)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        """Passes the losses of the rows on to Keras, which weights and reduces them."""
        return y_pred


def exact_row_losses(lazy: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
    """`softmax_cross_entropy` of each row, `[B]`, by one pass over all classes in blocks."""
    statistics = lazy.class_statistics(labels)
    return softmax_cross_entropy(statistics.log_partition, statistics.true_logits, labels >= 0)
