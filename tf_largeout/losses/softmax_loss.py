"""`SoftmaxLoss`: the exact one."""

import keras
import tensorflow as tf

from tf_largeout.arguments import is_real
from tf_largeout.class_statistics import ExactPass
from tf_largeout.losses.cross_entropy import exact_cross_entropy
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class SoftmaxLoss(TaggedLoss):
    """Exact softmax cross entropy over all classes.

    `-mean_y(o_y) + log(sum_c exp(o_c))` for the labels `y` of a row. Computed in blocks of
    classes: `[batch, num_classes]` never exists, and the backward pass computes the
    probabilities again. Time and the gradient of the class embeddings are O(num_classes), so
    this is the loss to compare with, and the one to train with while all classes fit.

    Two arguments make training steps faster, and a little less exact. They are for training
    alone: `evaluate` is exact in float32, as are metrics there. Metrics of a training step
    show the ranks that the loss found.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: "float32", or "bfloat16": features, class embeddings and, in the
            gradient, probabilities are rounded to the nearest bfloat16 before they are
            multiplied; sums, biases, variables and gradients are float32. Each product is off
            by about 2^-8 of itself at most. Processors with AMX multiply so several times as
            fast. Others round alike, so that a model trains alike everywhere, and take about
            the time of float32. Not on a GPU.
        skipped_mass: Between 0 and 1, how much probability of a row the gradient may leave
            out. A block of 96 consecutive classes is not computed again for 64 rows of the
            batch if none gives it more than an equal share of this: the surer a model is, the
            more blocks. The gradient of the features of a row of weight `a` changes by at most
            `a * skipped_mass * max_c |w_c|`, that of the embedding of class c by at most
            `skipped_mass * 96 / num_classes * sum_b a_b |h_b|`. Blocks with labels are never
            left out. Defaults to 0; on a GPU nothing is left out.

    Raises:
        ValueError: If `compute_dtype` or `skipped_mass` is none of these.
        tf.errors.InvalidArgumentError: In training, if `compute_dtype` is "bfloat16" on a GPU.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        skipped_mass: float = 0.0,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if compute_dtype not in ("float32", "bfloat16"):
            raise ValueError(
                "`compute_dtype` must be 'float32' or 'bfloat16'. "
                f"Received: compute_dtype={compute_dtype!r}."
            )
        if not is_real(skipped_mass) or not 0 <= skipped_mass <= 1:
            raise ValueError(
                "`skipped_mass` must be a number between 0 and 1. "
                f"Received: skipped_mass={skipped_mass!r}."
            )
        self.compute_dtype = compute_dtype
        self.skipped_mass = float(skipped_mass)

    def row_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        options = ExactPass(self.compute_dtype, self.skipped_mass)
        return exact_cross_entropy(tag, labels, options)

    def evaluation_losses(self, tag: OutputTag, labels: tf.Tensor) -> tf.Tensor:
        """The exact cross entropy of each row, in float32, see `TaggedLoss`."""
        return exact_cross_entropy(tag, labels)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "compute_dtype": self.compute_dtype,
            "skipped_mass": self.skipped_mass,
        }
