"""The base class of all losses of this library."""

import re
from typing import Any, TypedDict

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import is_whole, unpack
from tf_largeout.keras_internals import (
    mask_of,
    running_step,
    set_mask,
)
from tf_largeout.steps.labels import Labels, per_example
from tf_largeout.steps.output_tag import OutputTag, tag_of
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, DTypeLike, TensorLike
from tf_largeout.wrong_arguments import OF_LOSSES, refuse_wrong_arguments_of

# Dtypes of the factors in a loss's products.
COMPUTE_DTYPES = ("float32", "bfloat16")


class LossOptions(TypedDict, total=False):
    """The arguments that all losses have, see `TaggedLoss`."""

    reduction: str | None
    name: str | None
    dtype: DTypeLike | None
    ignore_class: int | None


class TaggedLoss(keras.losses.Loss):
    """A loss that uses the tag of an output layer, not its logits.

    A tag is an object that an output layer attaches to its output. With labels, it makes a
    `Step`: the features, labels and classes of a batch. A loss is a function of the step. A
    subclass defines this function, `of_step`. This class handles labels, masks, weights and
    reduction.

    An example whose labels are all -1 does not count, as with a Keras mask or with
    `ignore_class=-1` in Keras's losses. Positions of sequences that do not count are not
    scored, except by a `FactoredOutput`. The reduction "sum_over_batch_size" divides by the
    number of examples that count, whatever their weights. "mean_with_sample_weight" divides by
    the sum of their weights. If no example of a batch counts, the loss and its gradient are 0.
    Each replica of a strategy divides by the number of examples that count in its part of the
    batch.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss. By default its class name in snake case, such as "nce_loss".
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: An id, such as -100, that marks labels to ignore, as in Keras's
            `SparseCategoricalCrossentropy`. It has the effect of -1, which always marks
            padding. It can be any int, even the id of a class. The metrics of the same output
            ignore it too. None: only -1 is ignored.

    Attributes:
        step_class: The class of steps that the loss needs, which determines the layers that it
            can train.
        samples: Whether the loss needs a sample in training, if the layer has a sampler.
        changes_some_rows: Whether its gradient has only rows of some classes.
        ranking: How a model that is trained with this loss ranks the classes: by "logit",
            "absolute" (`|logit|`) or "taylor" (`|1 + logit|`).
        takes_soft_targets: Whether the loss accepts soft targets.
        takes_numeric_targets: Whether the loss accepts any numbers as sparse targets. Metrics
            then use the classes with a target above 0 as labels.

    Call arguments:
        y_true: Integer class ids. `[batch]` for one label per example. `[batch, max_labels]`,
            padded with -1 or ragged, for several. For sequences `[batch, time]` or `[batch,
            time, max_labels]`. A label that is repeated in an example counts as often as it
            occurs, as in `tf.nn`. Multi-hot labels, a matrix of only 0 and 1 with one column
            per class, raise an error. If the loss accepts soft targets: also the target
            probabilities of the classes, as a `tf.SparseTensor` `[batch, num_classes]` or
            `[batch, time, num_classes]` of floats.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional finite weights, aligned with the leading dimensions: for
            sequences `[batch, time, dim]` they are `[batch]` or `[batch, time]`. The weights of
            examples that do not count have no effect, even if they are NaN.

    Raises:
        ValueError: If `ignore_class` is neither an int nor None, `y_pred` is not the direct
            output of such a layer, the labels are neither integers nor soft targets, or the
            shapes of labels or weights do not match the features.
        tf.errors.InvalidArgumentError: If a label is out of range, the labels are multi-hot, or
            a feature or a weight is not finite.
    """

    step_class: type[Step] = Step
    samples = changes_some_rows = False
    ranking = "logit"
    takes_soft_targets = False
    takes_numeric_targets = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "TaggedLoss":
        refuse_wrong_arguments_of(cls, kwargs, OF_LOSSES)
        return super().__new__(cls)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        name = name or _snake_case(type(self).__name__)
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if ignore_class is not None and not (
            is_whole(ignore_class) and -(2**63) <= ignore_class < 2**63
        ):
            raise ValueError(
                "`ignore_class` must be an integer of 64 bits or None. "
                f"Received: ignore_class={ignore_class!r}."
            )
        self.ignore_class = None if ignore_class is None else int(ignore_class)

    def of_step(self, step: Any) -> tf.Tensor:
        """Returns the loss of each example.

        Args:
            step: The `step_class` instance of `B` examples. If it does not train
                (`step.training`), the result is what `evaluate` reports.

        Returns:
            float32 `[B]`, 0 for an example without labels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `of_step`.")

    def labels(self, tag: OutputTag, y_true: TensorLike) -> Labels:
        """Returns the `Labels` of `y_true`: by default those that all losses accept."""
        return tag.labels(y_true)

    def __call__(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        # Overridden because Keras would cast the labels to float32, which is wrong above 2^24.
        tag, mask = tag_of(y_pred, type(self).__name__, self.step_class), mask_of(y_pred)
        if tag is not None:
            tag.loss = self
            tag.head.ranking.follow(self, replace=bool(tag.training))
            labels = self.labels(tag, y_true)
            counted = _by_position(labels.counted, tag)
            mask = counted if mask is None else counted & per_example(mask, y_pred, "bool")
        if sample_weight is not None:
            _check_class_weight(y_true)
            sample_weight = self._checked_weights(sample_weight, y_pred, mask)
        if tag is None:
            losses = tf.reduce_sum(y_pred, axis=-1)
        else:
            checked = [labels.ids, tag.flat_features]
            checked += [] if sample_weight is None else [sample_weight]
            with tf.control_dependencies(checked):  # before a sampler changes its state
                sampled = self.samples and bool(tag.training)
                selected = tag.step(labels, labels.counted, sampled)
                losses = self.of_step(selected.step)
                if selected.rows is not None:
                    losses = selected.rows.put_back(losses)
            losses = _by_position(losses, tag)
        if mask is not None:
            set_mask(losses, mask)
        return super().__call__(losses, losses, sample_weight)

    def _checked_weights(
        self, sample_weight: TensorLike, y_pred: tf.Tensor, counted: tf.Tensor | None
    ) -> tf.Tensor:
        """Returns finite weights `[batch, ...]`, 0 for the examples that do not count."""
        message = (
            f"The `sample_weight` of {type(self).__name__} must be finite (Keras makes it from "
            "`class_weight` if that is given). Give examples that must not count the label -1"
        )
        weights = per_example(sample_weight, y_pred, self.dtype)
        if counted is not None:
            weights = tf.where(tf.cast(counted, "bool"), weights, 0)
        return checks.finite(weights, message)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Passes the losses on to Keras, which applies weights and the reduction.

        Args:
            y_true: Not used.
            y_pred: Float `[batch, ...]`, the loss of each example, computed by `__call__`.

        Returns:
            `y_pred`.
        """
        return y_pred

    def get_config(self) -> Config:
        config = super().get_config()
        if self.ignore_class is not None:  # a subclass need not have this argument
            config["ignore_class"] = self.ignore_class
        return config

    @classmethod
    def from_config(cls, config: Config) -> "TaggedLoss":
        if isinstance(config.get("class_weights"), str):
            config = {**config, "class_weights": unpack(config["class_weights"], "<f4")}
        return cls(**config)


def _by_position(values: tf.Tensor, tag: OutputTag) -> tf.Tensor:
    """Reshapes `values`, `[B]`, to the leading shape of the features."""
    values = tf.reshape(values, tf.shape(tag.features)[:-1])
    return tf.ensure_shape(values, tag.features.shape[:-1])


def _check_class_weight(y_true: TensorLike) -> None:
    """Raises a ValueError if `class_weight` of `fit` is used with several labels per example.

    Keras would silently use the weight of the column with the largest value.
    """
    shape = tf.TensorShape(y_true.shape)
    if shape.rank in (None, 0, 1) or shape[-1] == 1 or not running_step().has_class_weight:
        return
    raise ValueError(
        "`class_weight` needs one label per example, labels of shape [batch]. Received labels "
        f"of shape {shape}: Keras would take the number of a column as the class. Pass "
        "`class_weights` to the loss, such as DecoupledSoftmaxLoss(class_weights=weights), or "
        "`sample_weight` to `fit`."
    )


def _snake_case(name: str) -> str:
    """Returns a name in snake case: "nce_loss" for "NCELoss"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
