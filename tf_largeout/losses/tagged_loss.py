"""The base class of all losses for our output layers."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.output_tag import OutputTag, tag_of
from tf_largeout.row_weights import per_row
from tf_largeout.types import DTypeLike, TensorLike

# What the factors of a loss's products may be.
COMPUTE_DTYPES = ("float32", "bfloat16")


class TaggedLoss(keras.losses.Loss):
    """A loss that works from the tag of an output layer, not from its logits.

    It knows labels, masks, weights and reduction. A subclass writes `row_losses`; and
    `evaluation_losses`, if outside of training (`evaluate`, `validation_data`) something else
    is to be reported.

    A row whose labels are all -1 has weight 0, as with `sample_weight`: it counts in the size
    of the batch that "sum_over_batch_size" divides by.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.

    Attributes:
        tag_class: The class of tags that the loss works from: which layers it can train.
        ranking: By what a model that it trains ranks the classes: "logit", "absolute"
            (`|logit|`) or "taylor" (`|1 + logit|`).

    Call arguments:
        y_true: Integer class ids: `[batch]` or, padded with -1 or ragged, `[batch,
            max_labels]`; with further dimensions between where the features have them. A class
            that is given twice counts twice, as in `tf.nn`. Not multi-hot: a matrix of 0 and 1
            alone with one column per class is refused.
        y_pred: The direct output of an output layer of ours.
        sample_weight: Optional weights that broadcast to the leading dimensions, aligned in
            front: those of sequences `[batch, time, dim]` are `[batch]` or `[batch, time]`.

    Raises:
        ValueError: If `y_pred` is no direct output of such a layer, the labels are not
            integers, or they or the weights do not fit the features in shape.
        tf.errors.InvalidArgumentError: If a label is out of range, the labels are multi-hot, or
            a feature is not finite.
    """

    tag_class: type[OutputTag] = OutputTag
    ranking = "logit"

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)

    def row_losses(self, tag: Any, labels: tf.Tensor) -> tf.Tensor:
        """The training loss of each row.

        Args:
            tag: The `tag_class` instance of `B` rows.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B]`, 0 for a row without labels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `row_losses`.")

    def evaluation_losses(self, tag: Any, labels: tf.Tensor) -> tf.Tensor:
        """What is reported for each row outside of training: by default the training loss.

        Args:
            tag: The `tag_class` instance of `B` rows.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B]`, 0 for a row without labels.
        """
        return self.row_losses(tag, labels)

    def __call__(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        # Overridden because Keras would cast the labels to float32, wrong above 2^24.
        tag = tag_of(y_pred, type(self).__name__, self.tag_class)
        if tag is None:
            losses = tf.reduce_sum(y_pred, axis=-1)
        else:
            tag.take_loss(self)
            labels = tag.label_matrix(y_true)
            compute = self.row_losses if tag.training else self.evaluation_losses
            losses = tf.reshape(compute(tag, labels), tf.shape(tag.features)[:-1])
            losses = tf.ensure_shape(losses, tag.features.shape[:-1])
        if getattr(y_pred, "_keras_mask", None) is not None:
            losses._keras_mask = y_pred._keras_mask
        if sample_weight is not None:
            sample_weight = per_row(sample_weight, y_pred, losses.dtype)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Passes the losses of the rows on to Keras, which weights and reduces them.

        Args:
            y_true: Not used.
            y_pred: Float `[batch, ...]`, the losses of the rows, which `__call__` has computed.

        Returns:
            `y_pred`.
        """
        return y_pred
