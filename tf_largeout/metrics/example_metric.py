"""The base class of all metrics of this library."""

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of
from tf_largeout.tags.example_weights import per_example
from tf_largeout.tags.output_tag import OutputTag, tag_of
from tf_largeout.types import DTypeLike, TensorLike


class ExampleMetric(keras.metrics.Metric):
    """A weighted ratio of two sums over the examples of all batches.

    Subclasses define `example_terms`. The sums are float64, which is exact for counts far above
    2^24.

    In `evaluate`, metrics and loss share one exact pass over the classes. In training, the time
    of a metric does not depend on the number of classes. The documentation of each metric
    describes its value in training.

    An example whose labels are all -1 has weight 0. An example of weight 0 adds nothing, even
    if its terms are NaN. Repeated labels of an example count once. If no step could compute the
    metric, or the weights add up to 0, the result is NaN.

    Args:
        name: Name of the metric.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Call arguments:
        y_true: Integer class ids, as for the losses. `[batch]` for one label per example.
            `[batch, max_labels]`, padded with -1 or ragged, for several. For sequences `[batch,
            time]` or `[batch, time, max_labels]`.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights, aligned with the leading dimensions: for sequences
            `[batch, time, dim]` they are `[batch]` or `[batch, time]`.

    Raises:
        ValueError: If `y_pred` is not the direct output of such a layer, the labels are not
            integers, or the shapes of labels or weights do not match the features.
    """

    _direction = "up"  # what mode "auto" of Keras's callbacks treats as an improvement

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

    def update_state(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> None:
        tag = tag_of(y_pred, type(self).__name__, OutputTag)
        if tag is None:
            return
        labels = tag.label_matrix(y_true)
        valid = tag.distinct_labels(labels)
        terms = self.example_terms(tag, labels, valid)
        if terms is None:
            return
        weights = _example_weights(tag, valid, sample_weight, mask_of(y_pred))
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            weighted = tf.where(weights != 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self) -> tf.Tensor:
        return tf.cast(self._ratio(), self.dtype)

    def _ratio(self) -> tf.Tensor:
        numerator = tf.convert_to_tensor(self.numerator)
        denominator = tf.convert_to_tensor(self.denominator)
        nothing = tf.constant(float("nan"), tf.float64)
        return tf.where(denominator == 0, nothing, numerator / denominator)

    def _sum(self, name: str) -> keras.Variable:
        return self.add_variable((), "zeros", dtype="float64", name=name)


def _example_weights(
    tag: OutputTag, valid: tf.Tensor, sample_weight: TensorLike | None, mask: tf.Tensor | None
) -> tf.Tensor:
    """Returns the weights, float64 `[B]`; 0 for examples that are masked or have no label."""
    counts = tf.reduce_any(valid, axis=-1)
    if mask is not None:
        counts &= _flat(mask, tag, "bool")
    weights = tf.ones([], tf.float64)
    if sample_weight is not None:
        weights = _flat(sample_weight, tag, "float64")
    return tf.where(counts, weights, 0)


def _flat(weights: TensorLike, tag: OutputTag, dtype: str) -> tf.Tensor:
    return tf.reshape(per_example(weights, tag.features, dtype), [-1])
