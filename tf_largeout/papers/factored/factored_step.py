"""Steps of `FactoredOutput`: sums over all logits, without computing the logits."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassStatistics
from tf_largeout.papers.factored.factored_update import FactoredUpdate, LearningBatch, Spheres
from tf_largeout.steps.labels import (
    Labels,
    SelectedRows,
    as_labels,
    checked_targets,
    padded_rows,
)
from tf_largeout.steps.output_tag import Head, OutputTag, Ranking, Selection
from tf_largeout.steps.step import Step, mean_over
from tf_largeout.types import Config, TensorLike

_WHAT_TRAINS = "`TaylorSoftmaxLoss`, `ZLoss`, `SphericalSoftmaxLoss` or `SquaredErrorLoss`"


class Targets(NamedTuple):
    """Targets of a batch, for losses of numbers.

    Attributes:
        values: float64 `[B, L]`, the targets of the labels' logits; 0 at padding.
        observed: bool `[B, L]`, False at padding and at repeats of a label.
        counts: bool `[B]`, the examples that count in the mean of the loss.
    """

    values: tf.Tensor
    observed: tf.Tensor
    counts: tf.Tensor


class FactoredRanking(Ranking):
    """The ranking of a `FactoredOutput`, with the `epsilon` of its `SphericalSoftmaxLoss`."""

    def __init__(self, given: str | None = None) -> None:
        super().__init__(given)
        self.epsilon: float | None = None

    def follow(self, loss: object, *, replace: bool = True) -> None:
        before, ranking = self.of_loss, getattr(loss, "ranking", None)
        super().follow(loss, replace=replace)
        if ranking is not None and (replace or before in (None, ranking)):
            self.epsilon = getattr(loss, "epsilon", None)

    def get_config(self) -> Config:
        epsilon = {} if self.epsilon is None else {"loss_epsilon": self.epsilon}
        return {**super().get_config(), **epsilon}

    def set_config(self, config: Config) -> None:
        super().set_config(config)
        self.epsilon = config.get("loss_epsilon")


@dataclasses.dataclass(frozen=True, eq=False)
class FactoredLabels(Labels):
    """Labels with numbers as targets.

    Attributes:
        values: Float `[B, L]`, the targets of the labels' logits, 0 at padding; None for 1.
    """

    values: tf.Tensor | None = None

    @functools.cached_property
    def counted(self) -> tf.Tensor:
        """Bool `[B]`: all examples count in means, also those without a target."""
        return tf.ones(tf.shape(self.ids)[:1], tf.bool)


@dataclasses.dataclass(frozen=True, eq=False)
class FactoredStep(Step):
    """Gives losses of the spherical family three numbers per label, in O(dim^2) per example.

    Attributes:
        spheres_of: Function of labels, int64 `[B, L]`, that returns their `Spheres`. In
            training, the backward pass updates the weights of the layer, once for all losses,
            even if their labels differ.
        learns: Whether the step trains the weights of the layer.
    """

    given_by: ClassVar[str] = "`FactoredOutput`"
    losses_to_take: ClassVar[str] = _WHAT_TRAINS

    spheres_of: Callable[[tf.Tensor], Spheres] | None = None
    learns: bool = False

    def spheres(self) -> Spheres:
        """Returns the `Spheres` of the labels; all losses of a step share them."""
        key = "spheres", id(self.labels)
        if key not in self.shared:
            self.shared[key] = self.spheres_of(self.labels.ids)  # type: ignore[misc]
        return self.shared[key]

    def known_cross_entropies(self, absolute: bool | None = None) -> tf.Tensor | None:
        """See `Step`. If `absolute` is None, the loss may define its own p."""
        if absolute is None and self.loss is None and self.ranking != "logit":
            raise ValueError(
                f"Layer '{self.layer_name}' was trained with a loss that defines its own "
                "probabilities, so its perplexity needs that loss. Compile the model with the "
                "loss and call `evaluate`; or pass `absolute=False` to the metric, for the "
                "perplexity of the softmax of the logits."
            )
        loss: keras.losses.Loss = self.loss
        if absolute is not None or not getattr(loss, "is_cross_entropy", False):
            return super().known_cross_entropies(bool(absolute))
        if self.training and ("spheres", id(self.labels)) not in self.shared:
            return None  # `spheres` would make another step
        losses = loss.label_losses(*self.spheres().as_columns(), self.num_classes)
        return tf.cast(mean_over(self.distinct_labels, losses), tf.float32)

    def targets(self) -> Targets:
        """Returns the `Targets` of the labels: 1 for each, or the values of sparse targets."""
        labels, observed = self.labels, self.distinct_labels
        values = tf.cast(observed, tf.float64)
        if isinstance(labels, FactoredLabels):
            observed, values = labels.ids >= 0, tf.cast(labels.values, tf.float64)
        return Targets(values, observed, labels.counted)

    def statistics(
        self, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics`, outside training.

        In training it raises a ValueError: a loss that uses them would not train the classes.
        """
        if self.learns:
            raise ValueError(_message(self.layer_name))
        return super().statistics(compute_dtype, ranking)


class FactoredTag(OutputTag):
    """The tag of a `FactoredOutput`. All losses of a step make one update together.

    `loss_scale` returns what the gradients of the step are multiplied by; None if the layer
    does not learn in this step.
    """

    step_class = FactoredStep

    def __init__(
        self,
        head: Head,
        features: tf.Tensor,
        training: bool | None,
        exclude: tf.Tensor | None,
        update: FactoredUpdate,
        loss_scale: Callable[[], tf.Tensor] | None,
    ) -> None:
        super().__init__(head, features, training, exclude)
        self._update, self._loss_scale = update, loss_scale

    def attach_to(self, logits: tf.Tensor) -> tf.Tensor:
        if self._loss_scale is not None:
            logits = _without_gradient(logits, self._update.anchor, self.head.name)
        return super().attach_to(logits)

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The features as `[B, dim]`. The ops check that they are finite."""
        return tf.reshape(self.features, [-1, self.features.shape[-1]])

    def step(self, labels: Labels, counted: tf.Tensor, sampled: bool = False) -> Selection:
        """Returns the step of all examples, because all losses make one update together."""
        key = "step", id(labels)
        if key not in self.shared:
            self.shared[key] = Selection(self.make_step(labels, None, sampled))
        return self.shared[key]

    def arguments(self, labels: Labels, rows: SelectedRows | None) -> dict[str, Any]:
        own = {"spheres_of": self._spheres_of, "learns": self._loss_scale is not None}
        return {**super().arguments(labels, rows), **own}

    def labels(self, y_true: TensorLike, numeric: bool = False) -> Labels:
        """As in `OutputTag`; metrics use the classes with numeric targets above 0 as labels."""
        if numeric and isinstance(y_true, tf.SparseTensor):
            return self.sparse_targets(y_true)
        takes_numbers = self.loss is not None and self.loss.takes_numeric_targets
        if not (takes_numbers and isinstance(y_true, tf.SparseTensor)):
            return super().labels(y_true)
        key = "positive", id(y_true)
        if key not in self.shared:
            found = self.sparse_targets(y_true)
            values = tf.convert_to_tensor(found.values)
            self.shared[key] = tf.where(values > 0, found.ids, -1)
        return super().labels(self.shared[key])

    def sparse_targets(self, y_true: tf.SparseTensor) -> FactoredLabels:
        """Returns the classes of sparse targets, with their values; all examples count.

        Values of `y_true`, `[batch, num_classes]`, with equal indices are added. The errors are
        those of `checked_targets`.
        """
        key, num_classes = ("sparse", id(y_true)), self.head.num_classes
        if key in self.shared:
            return self.shared[key][1]
        if not y_true.shape.is_compatible_with([None, num_classes]):
            raise ValueError(
                f"Sparse targets must be [batch, {num_classes}], one column per class. "
                f"Received: shape {y_true.shape}."
            )
        checked = checked_targets(y_true, num_classes, "Sparse targets")
        ids, values = padded_rows(checked)
        found = as_labels(ids, self.features, num_classes)
        labels = FactoredLabels(found.ids, values=values)
        self.shared[key] = y_true, labels
        return labels

    def _spheres_of(self, labels: tf.Tensor) -> Spheres:
        if not self.training:
            return self._update.spheres(self._as_weights, labels)
        return self._learning_batch.spheres(labels)

    @functools.cached_property
    def _learning_batch(self) -> LearningBatch:
        scale = tf.constant(1.0, tf.float64) if self._loss_scale is None else self._loss_scale()
        learns = self._loss_scale is not None
        return self._update.learning_batch(self._as_weights, scale, update=learns)

    @functools.cached_property
    def _as_weights(self) -> tf.Tensor:
        return tf.cast(self.flat_features, self._update.dtype)


def _without_gradient(logits: tf.Tensor, anchor: keras.Variable, owner: str) -> tf.Tensor:
    """Returns the logits with a gradient that raises an error, for any other loss."""

    @tf.custom_gradient
    def refusing(logits: tf.Tensor, anchor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(_: tf.Tensor) -> tf.Tensor:
            raise ValueError(_message(owner))

        return tf.identity(logits), gradient

    return refusing(logits, tf.convert_to_tensor(anchor))


def _message(owner: str) -> str:
    return (
        f"FactoredOutput '{owner}' cannot be trained with this loss. Its exact update supports "
        f"{_WHAT_TRAINS}. For other losses, use a `LargeOutput`."
    )
