"""`SoftmaxLoss`: the exact one."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import exact_cross_entropy
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.output_tag import OutputTag
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class SoftmaxLoss(TaggedLoss):
    """Exact softmax cross entropy over all classes.

    `-mean_y(o_y) + log(sum_c exp(o_c))` for the labels `y` of a row. Computed in blocks of
    classes: `[batch, num_classes]` never exists, and the backward pass computes the
    probabilities again. Time and the gradient of the class embeddings are O(num_classes), so
    this is the loss to compare with, and the one to train with while all classes fit.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "softmax_loss",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)

    def row_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        return exact_cross_entropy(tag, labels)
