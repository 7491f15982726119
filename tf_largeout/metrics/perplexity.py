"""`Perplexity`."""

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.metrics.rank_metrics import ExampleMetric, ratio
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class Perplexity(ExampleMetric):
    """The exponential of the mean exact cross entropy.

    `exp(mean over examples of (log(sum_c exp(o_c)) - mean over labels y of o_y))`.

    It is exact in `evaluate`. In training, it is exact with an exact loss, because it uses the
    probabilities that the loss computes. In training with a sampled loss, it is NaN.

    Args:
        absolute: True for the softmax of `|o_c|`, False for the softmax of `o_c`. None, the
            default, uses the probabilities of the loss that the model is compiled with. For
            `TaylorSoftmaxLoss` and `SphericalSoftmaxLoss`, the loss defines the probabilities.
            For `AbsoluteSoftmaxLoss`, they are the softmax of `|o_c|`, and for other losses the
            softmax of `o_c`.
        name: Name of the metric, "perplexity" or "absolute_perplexity" by default.
        dtype: Dtype of the result. The sums are float64.

    Its calls are those of `PrecisionAtK`; classes that are excluded change nothing.
    """

    _direction = "down"

    def __init__(
        self,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        default = "absolute_perplexity" if absolute else "perplexity"
        super().__init__(name=name or default, dtype=dtype)
        self.absolute = boolean("absolute", absolute, or_none=True)

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        losses = step.known_cross_entropies(self.absolute)
        return None if losses is None else (losses, tf.ones_like(losses))

    def result(self) -> tf.Tensor:
        return tf.cast(tf.exp(ratio(self.numerator, self.denominator)), self.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "absolute": self.absolute}
