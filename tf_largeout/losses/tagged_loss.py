"""The base class of all losses for our output layers."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of, set_mask
from tf_largeout.tags.example_weights import per_row
from tf_largeout.tags.output_tag import OutputTag, tag_of
from tf_largeout.types import DTypeLike, TensorLike

# What the factors of a loss's products may be.
COMPUTE_DTYPES = ("float32", "bfloat16")


class TaggedLoss(keras.losses.Loss):
    """A loss that works from the tag of an output layer, not from its logits.

    It knows labels, masks, weights and reduction. A subclass writes `row_losses`; and
    `evaluation_losses`, if outside of training (`evaluate`, `validation_data`) something else
    is to be reported.

    A row whose labels are all -1 does not count, as with a Keras mask, and as in Keras's losses
    with `ignore_class=-1`. "sum_over_batch_size" divides by the number of rows
    that count, whatever their weights, and "mean_with_sample_weight" by the sum of their
    weights. If no row of a batch counts, the loss and its gradient are 0. Each replica of a
    strategy divides by the number of rows that count in its own part of the batch.

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
        sample_weight: Optional finite weights that broadcast to the leading dimensions, aligned
            in front: those of sequences `[batch, time, dim]` are `[batch]` or `[batch, time]`.

    Raises:
        ValueError: If `y_pred` is no direct output of such a layer, the labels are not
            integers, or they or the weights do not fit the features in shape.
        tf.errors.InvalidArgumentError: If a label is out of range, the labels are multi-hot, or
            a feature or a weight is not finite.
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

    def counted_rows(self, tag: Any, labels: tf.Tensor) -> tf.Tensor:
        """Tells which rows count in the mean: by default those that have a label.

        Args:
            tag: The `tag_class` instance of `B` rows.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            bool `[B]`.
        """
        return tf.reduce_any(labels >= 0, axis=-1)

    def __call__(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        # Overridden because Keras would cast the labels to float32, wrong above 2^24.
        tag = tag_of(y_pred, type(self).__name__, self.tag_class)
        mask = mask_of(y_pred)
        checks = []
        if sample_weight is not None:
            sample_weight = self._checked_weights(sample_weight, y_pred)
            checks = [sample_weight]
        if tag is None:
            losses = tf.reduce_sum(y_pred, axis=-1)
        else:
            tag.take_loss(self)
            with tf.control_dependencies(checks):  # before a sampler changes its state
                losses, counted = self._losses_and_counted(tag, y_true)
            mask = counted if mask is None else counted & per_row(mask, y_pred, "bool")
        if mask is not None:
            set_mask(losses, mask)
        return super().__call__(losses, losses, sample_weight)

    def _losses_and_counted(self, tag: Any, y_true: TensorLike) -> list[tf.Tensor]:
        """The loss of each row, and whether it counts, in the shape of the rows."""
        labels = tag.label_matrix(y_true)
        compute = self.row_losses if tag.training else self.evaluation_losses
        rows, shape = tag.features.shape[:-1], tf.shape(tag.features)[:-1]
        return [
            tf.ensure_shape(tf.reshape(each, shape), rows)
            for each in (compute(tag, labels), self.counted_rows(tag, labels))
        ]

    def _checked_weights(self, sample_weight: TensorLike, y_pred: tf.Tensor) -> tf.Tensor:
        message = (
            f"The `sample_weight` of {type(self).__name__} must be finite (Keras makes it from "
            "`class_weight` where that is given). Give rows that must not count the label -1"
        )
        weights = per_row(sample_weight, y_pred, self.dtype)
        return tf.debugging.check_numerics(weights, message)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Passes the losses of the rows on to Keras, which weights and reduces them.

        Args:
            y_true: Not used.
            y_pred: Float `[batch, ...]`, the losses of the rows, which `__call__` has computed.

        Returns:
            `y_pred`.
        """
        return y_pred
