"""`Perplexity`."""

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.metrics.row_metric import RowMetric
from tf_largeout.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class Perplexity(RowMetric):
    """The exponential of the mean exact cross entropy.

    `exp(mean over rows with labels of log(sum_c exp(o_c)) - mean over labels y of o_y)`.

    Exact in `evaluate`, and in training with an exact loss, whose pass over the classes it
    shares. In training with a sampled loss it is not known: NaN.

    Args:
        absolute: Whether it is that of the distribution `exp(|o_c|)`, which
            `AbsoluteSoftmaxLoss` trains: with `|o_c|` for `o_c` above.
        name: Name of the metric, "perplexity" or "absolute_perplexity" by default.
        dtype: Type of the result, as in `keras.metrics.Metric`. (The sums are float64.)

    Call arguments:
        y_true: Integer class ids as the losses take them: one per row, or several, padded with
            -1 or ragged. A class that is given twice counts once; a row without labels has
            weight 0.
        y_pred: The direct output of an output layer of ours.
        sample_weight: Optional weights of the rows, aligned with their dimensions in front.

    Raises:
        ValueError: If `y_pred` is no direct output of such a layer, or labels or weights do
            not fit it.
    """

    _direction = "down"

    def __init__(
        self, absolute: bool = False, name: str | None = None, dtype: DTypeLike | None = None
    ) -> None:
        default = "absolute_perplexity" if absolute else "perplexity"
        super().__init__(name=name or default, dtype=dtype)
        self.absolute = boolean("absolute", absolute)

    def row_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        statistics = tag.known_statistics(labels, self.absolute)
        if statistics is None:
            return None
        present = tf.cast(valid, tf.float32)
        target = tf.math.divide_no_nan(
            tf.reduce_sum(tf.where(valid, statistics.true_logits, 0), axis=-1),
            tf.reduce_sum(present, axis=-1),
        )
        losses = statistics.log_partition - target
        return losses, tf.ones_like(losses)

    def result(self) -> tf.Tensor:
        return tf.cast(tf.exp(self._ratio()), self.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "absolute": self.absolute}
