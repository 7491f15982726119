"""The base class of metrics that are a ratio of two sums over examples."""

import keras
import tensorflow as tf

from tf_largeout.metrics.tagged_metric import TaggedMetric, ratio
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import DTypeLike


class ExampleMetric(TaggedMetric):
    """A weighted ratio of two sums over the examples of all batches.

    Subclasses define `example_terms`. The sums are float64, which is exact for counts far above
    2^24. An example of weight 0 adds nothing, even if its terms are NaN. If no step could
    compute the metric, or the weights add up to 0, the result is NaN.

    Args:
        name: Name of the metric.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.numerator = self._sum("numerator")
        self.denominator = self._sum("denominator")

    def example_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Returns what each example adds to the two sums.

        Args:
            tag: The tag of `B` examples.
            labels: int64 `[B, L]`, padded with -1.
            valid: bool `[B, L]`, False at padding and at repeats of a label.

        Returns:
            Two tensors that broadcast to `[B]`; or None if this step cannot compute them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `example_terms`.")

    def add_examples(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor, weights: tf.Tensor
    ) -> None:
        terms = self.example_terms(tag, labels, valid)
        if terms is None:
            self.skip_step(tag)
            return
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            weighted = tf.where(weights != 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self) -> tf.Tensor:
        return tf.cast(self._ratio(), self.dtype)

    def _ratio(self) -> tf.Tensor:
        return ratio(*map(tf.convert_to_tensor, (self.numerator, self.denominator)))

    def _sum(self, name: str) -> keras.Variable:
        return self.add_variable((), "zeros", dtype="float64", name=name)
