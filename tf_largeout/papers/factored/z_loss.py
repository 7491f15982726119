"""`ZLoss`: a loss of the label's logit in standard deviations above the mean logit."""

import math

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.papers.factored.spherical_loss import SphericalLoss
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class ZLoss(SphericalLoss):
    """`scale softplus(slope (target - z))` of a label's standardised logit `z`.

    `z = (a - mean) / deviation`, where a is the logit of the label. Mean and standard deviation
    are taken over the logits of all N classes: `mean = s / N` and
    `deviation^2 = q / N - mean^2`, with the sum s of the logits and the sum q of their squares
    (de Brebisson and Vincent 2016, "The Z-loss: a shift and scale invariant classification loss
    belonging to the spherical family"). The loss pushes the logit of the label to `target`
    standard deviations above the mean, whatever the scale of the logits. So it is a ranking
    loss and defines no probabilities. Tune the three arguments for your metric. (The paper
    calls them a, b and z_0.) If all class rows are equal, for example 0, the deviation is 0 and
    the loss is NaN.

    This is not the z-loss of PaLM, a penalty of log Z. For that penalty, use the argument
    `log_partition_penalty` of `SoftmaxLoss` or `SampledSoftmaxLoss`.

    Args:
        target: How many standard deviations above the mean the logit of a label should be. The
            highest of N random logits is about `sqrt(2 log N)` standard deviations above the
            mean, which is 5 for 200,000 classes. None, the default, is twice this number.
        slope: A number above 0. With a higher slope, the loss separates logits below the target
            more sharply from logits above it.
        scale: A number above 0, the factor of the loss. It has the same effect as a
            factor of the learning rate.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        target: float | None = None,
        slope: float = 1.0,
        scale: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "z_loss",
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.target = None if target is None else real_number("target", target, -math.inf)
        self.slope = real_number("slope", slope, 0.0, allow_least=False)
        self.scale = real_number("scale", scale, 0.0, allow_least=False)

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        mean = sums / num_classes
        deviation = tf.sqrt(squares / num_classes - mean**2)
        z = (true_logits - mean) / deviation
        target = self.target
        if target is None:
            target = 2 * math.sqrt(2 * math.log(num_classes))
        return self.scale * tf.nn.softplus(self.slope * (target - z))

    def get_config(self) -> Config:
        own = {"target": self.target, "slope": self.slope, "scale": self.scale}
        return {**super().get_config(), **own}
