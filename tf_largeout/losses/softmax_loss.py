"""`SoftmaxLoss`: the exact softmax loss."""

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

    `-mean_y(o_y) + log(sum_c exp(o_c))` for the labels `y` of an example. It works in blocks of
    classes: `[batch, num_classes]` is never in memory, and the backward pass recomputes the
    probabilities. Time and the gradient of the class embeddings are O(num_classes). Use it for
    comparisons, and for training if you have few enough classes.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: "float32" or "bfloat16". With "bfloat16", features, class embeddings and,
            in the gradient, probabilities are rounded to bfloat16 before they are multiplied.
            Sums, biases, variables and gradients stay float32. The relative error of a product
            is at most about 2^-8. This is several times as fast on processors with AMX, and
            slower than float32 on others, with the same rounding. It applies to training only,
            where metrics show the ranks that the loss found: `evaluate` is exact in float32.
            GPUs do not support it.

    Raises:
        ValueError: If `compute_dtype` is another string.
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

    def example_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        return exact_cross_entropy(tag, labels, self.compute_dtype)

    def evaluation_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        """Returns the exact cross entropy of each example, in float32."""
        return exact_cross_entropy(tag, labels)

    def get_config(self) -> Config:
        return {**super().get_config(), "compute_dtype": self.compute_dtype}
