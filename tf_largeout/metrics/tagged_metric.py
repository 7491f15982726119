"""The base classes of all metrics of this library."""

import logging
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of, running_step
from tf_largeout.steps.labels import per_example
from tf_largeout.steps.output_tag import OutputTag, tag_of
from tf_largeout.steps.step import Step
from tf_largeout.types import DTypeLike, TensorLike
from tf_largeout.wrong_arguments import OF_METRICS, refuse_wrong_arguments_of


class TaggedMetric(keras.metrics.Metric):
    """A metric that uses the tag of an output layer, not its logits.

    It handles labels, masks and weights. A subclass defines `add_examples` and `result`.

    In `evaluate`, metrics and loss share one exact pass over the classes. In training, metrics
    do no work that grows with the number of classes; each metric documents its value in
    training.

    Call arguments and errors are those of `PrecisionAtK`. Of sparse targets, the classes with a
    value above 0 are the labels.
    """

    _direction = "up"  # what mode "auto" of Keras's callbacks treats as an improvement
    _is_unknown_in_training = False
    _has_warned_of_monitors = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "TaggedMetric":
        refuse_wrong_arguments_of(cls, kwargs, OF_METRICS)
        return super().__new__(cls)

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds `B` examples to the state, or calls `skip_step`.

        Args:
            step: The step of `B` examples.
            valid: bool `[B, L]`, False at padding and at repeats of a label.
            weights: float64 `[B]`, 0 for examples that are masked or have no label.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `add_examples`.")

    def update_state(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> None:
        tag = tag_of(y_pred, type(self).__name__)
        if tag is None:
            return
        try:
            labels = tag.labels(y_true)
        except ValueError as error:
            raise ValueError(f"Metric '{self.name}' cannot use its labels. {error}") from error
        weights = _example_weights(tag, labels.counted, sample_weight, mask_of(y_pred))
        if tag.training:
            self._is_unknown_in_training = False
        selected = tag.step(labels, labels.counted)
        step = selected.step
        if selected.rows is not None:
            weights = selected.rows.take(weights)
        self.add_examples(step, step.distinct_labels, weights)

    def skip_step(self, step: Step) -> None:
        """Must be called in a step that cannot compute the metric; warns of monitors of it."""
        if step.training:
            self._is_unknown_in_training = True
            self._warn_of_monitors()

    def reset_state(self) -> None:
        # A later `fit` may have other callbacks than the one that traced the step.
        if self._is_unknown_in_training:
            self._warn_of_monitors()
        super().reset_state()

    def _warn_of_monitors(self) -> None:
        callback = running_step().monitored.get(self.name)
        if callback is None or self._has_warned_of_monitors:
            return
        self._has_warned_of_monitors = True
        logging.getLogger("tf_largeout").warning(
            "%s monitors '%s', which is NaN in training with this loss, because its value is "
            "not known there. A NaN never counts as an improvement, so EarlyStopping ends "
            "training after `patience` epochs. Pass `validation_data` to `fit` and monitor "
            "'val_%s', or use tf_largeout.callbacks.ExactMetrics and monitor 'exact_%s'.",
            callback,
            *[self.name] * 3,
        )


class ExampleMetric(TaggedMetric):
    """A weighted ratio of two sums over the examples of all batches.

    Subclasses define `example_terms`. The sums are float64, which is exact for counts far above
    2^24. An example of weight 0 adds nothing, even if its terms are NaN. If no step could
    compute the metric, or the weights add up to 0, the result is NaN.
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.numerator, self.denominator = (
            self.add_variable((), "zeros", dtype="float64", name=one)
            for one in ("numerator", "denominator")
        )

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Returns what each example of `add_examples` adds to the two sums.

        They are two tensors that broadcast to `[B]`; or None if this step cannot compute them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `example_terms`.")

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        terms = self.example_terms(step, valid)
        if terms is None:
            self.skip_step(step)
            return
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            weighted = tf.where(weights != 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self) -> tf.Tensor:
        return tf.cast(ratio(self.numerator, self.denominator), self.dtype)


def ratio(numerator: TensorLike, denominator: TensorLike) -> tf.Tensor:
    """Returns the quotients, NaN where the denominator is 0, for float64 numbers."""
    numerator, denominator = map(tf.convert_to_tensor, (numerator, denominator))
    nothing = tf.constant(float("nan"), tf.float64)
    return tf.where(denominator == 0, nothing, numerator / denominator)


def _example_weights(
    tag: OutputTag,
    counts: tf.Tensor,
    sample_weight: TensorLike | None,
    mask: tf.Tensor | None,
) -> tf.Tensor:
    """Returns the weights, float64 `[B]`; 0 for examples that are masked or do not count."""
    if mask is not None:
        counts &= _flat(mask, tag, "bool")
    weights = tf.ones([], tf.float64)
    if sample_weight is not None:
        weights = _flat(sample_weight, tag, "float64")
    return tf.where(counts, weights, 0)


def _flat(weights: TensorLike, tag: OutputTag, dtype: str) -> tf.Tensor:
    return tf.reshape(per_example(weights, tag.features, dtype), [-1])
