"""`SoftmaxLoss`: the exact one."""

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.losses.cross_entropy import exact_cross_entropy
from tf_largeout.losses.tagged_loss import COMPUTE_DTYPES, TaggedLoss
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


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
        compute_dtype: "float32", or "bfloat16": features, class embeddings and, in the
            gradient, probabilities are rounded to the nearest bfloat16 before they are
            multiplied; sums, biases, variables and gradients are float32. Each product is off
            by about 2^-8 of itself at most. Processors with AMX multiply so several times as
            fast. Others round alike, so that a model trains alike everywhere, but take longer
            than in float32. For training alone, where metrics show the ranks that the loss
            found: `evaluate` is exact in float32. Not on a GPU.

    Raises:
        ValueError: If `compute_dtype` is neither.
        tf.errors.InvalidArgumentError: In training, if `compute_dtype` is "bfloat16" on a GPU.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)

    def row_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        return exact_cross_entropy(tag, labels, self.compute_dtype)

    def evaluation_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        """The exact cross entropy of each row, in float32, see `TaggedLoss`."""
        return exact_cross_entropy(tag, labels)

    def get_config(self) -> Config:
        return {**super().get_config(), "compute_dtype": self.compute_dtype}
