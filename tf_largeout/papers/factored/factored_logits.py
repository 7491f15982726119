"""The tag of `FactoredOutput`: sums over all logits, without computing the logits."""

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.papers.factored.factored_update import LearningBatch, Spheres
from tf_largeout.tags.labels import checked_targets, padded_rows
from tf_largeout.tags.output_tag import OutputTag, Selection, mean_over
from tf_largeout.types import TensorLike

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


class FactoredLogits(OutputTag):
    """Gives losses of the spherical family three numbers per label, in O(dim^2) per example.

    Args:
        layer: The `FactoredOutput`.
        features: Its input, `[..., dim]`.
        training: Whether the step trains.
    """

    given_by = "`FactoredOutput`"
    losses_to_take = _WHAT_TRAINS

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None) -> None:
        super().__init__(layer, features, training)
        self._spheres: dict[int, Spheres] = {}
        self._targets: dict[int, Targets] = {}
        self._sparse: dict[int, tuple[Any, tf.Tensor]] = {}  # by id of the sparse targets

    def attach_to(self, logits: tf.Tensor) -> tf.Tensor:
        if self._learns:
            logits = _without_gradient(logits, self.layer.anchor, self.layer.name)
        return super().attach_to(logits)

    @functools.cached_property
    def checked_features(self) -> tf.Tensor:
        """The features as `[B, dim]`. The ops check that they are finite."""
        return tf.reshape(self.features, [-1, self.features.shape[-1]])

    def select(self, labels: tf.Tensor, counted: tf.Tensor) -> Selection:
        """Returns all examples, because all losses of a step make one update together."""
        return Selection(self, labels)

    def spheres(self, y_true: TensorLike) -> Spheres:
        """Returns the `Spheres` of the batch; all losses of a step share them.

        In training, the backward pass updates the layer's weights, once for all losses, even
        if their labels differ.
        """
        labels = self.label_matrix(y_true)
        if id(labels) not in self._spheres:
            self._spheres[id(labels)] = self._spheres_of(labels)
        return self._spheres[id(labels)]

    def known_cross_entropies(
        self, y_true: TensorLike, absolute: bool | None = None
    ) -> tf.Tensor | None:
        """See `OutputTag`. If `absolute` is None, the loss may define its own p.

        Raises:
            ValueError: If no loss was called on the output, and the layer was trained with a
                loss whose probabilities are not a softmax.
        """
        if absolute is None and self.loss is None and self.layer.ranking != "logit":
            raise ValueError(
                f"Layer '{self.layer.name}' was trained with a loss that defines its own "
                "probabilities, so its perplexity needs that loss. Compile the model with the "
                "loss and call `evaluate`; or pass `absolute=False` to the metric, for the "
                "perplexity of the softmax of the logits."
            )
        if absolute is not None or not getattr(self.loss, "is_cross_entropy", False):
            return super().known_cross_entropies(y_true, bool(absolute))
        labels = self.label_matrix(y_true)
        if self.training and id(labels) not in self._spheres:
            return None  # `spheres` would make another step
        losses = self.loss.label_losses(*self.spheres(labels).as_columns(), self.num_classes)
        return tf.cast(mean_over(self.distinct_labels(labels), losses), tf.float32)

    def targets(self, labels: tf.Tensor) -> Targets:
        """Returns the `Targets` of labels: 1 for each, or the values of `sparse_targets`.

        Args:
            labels: int64 `[B, L]`, from `label_matrix` or `sparse_targets`.
        """
        if id(labels) in self._targets:
            return self._targets[id(labels)]
        observed = self.distinct_labels(labels)
        counts = tf.reduce_any(labels >= 0, axis=-1)
        return Targets(tf.cast(observed, tf.float64), observed, counts)

    def sparse_targets(self, y_true: tf.SparseTensor) -> tf.Tensor:
        """Returns the classes of sparse targets as a label matrix; all examples count.

        Args:
            y_true: Numbers `[batch, num_classes]`. Values with equal indices are added.

        Raises:
            ValueError: If the shape is wrong.
            tf.errors.InvalidArgumentError: When the step runs, if an index is out of range or a
                value is not finite.
        """
        if id(y_true) in self._sparse:
            return self._sparse[id(y_true)][1]
        if not y_true.shape.is_compatible_with([None, self.num_classes]):
            raise ValueError(
                f"Sparse targets must be [batch, {self.num_classes}], one column per class. "
                f"Received: shape {y_true.shape}."
            )
        checked = checked_targets(y_true, self.num_classes, "Sparse targets")
        ids, values = padded_rows(checked)
        labels = self.label_matrix(ids)
        all_count = tf.ones(tf.shape(labels)[:1], tf.bool)
        self._targets[id(labels)] = Targets(tf.cast(values, tf.float64), labels >= 0, all_count)
        self._sparse[id(y_true)] = y_true, labels
        return labels

    def _new_label_matrix(self, y_true: TensorLike, ignored: int | None) -> tf.Tensor:
        """As in `OutputTag`. Of numeric targets, the classes with values above 0 are labels."""
        if isinstance(y_true, tf.SparseTensor) and getattr(
            self.loss, "takes_numeric_targets", False
        ):
            labels = self.sparse_targets(y_true)
            y_true = tf.where(self.targets(labels).values > 0, labels, -1)
        return super()._new_label_matrix(y_true, ignored)

    def class_statistics(
        self, y_true: TensorLike, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics`, outside training.

        Raises:
            ValueError: In training, because a loss that uses the statistics would not train the
                classes.
        """
        if self._learns:
            raise ValueError(_message(self.layer.name))
        return super().class_statistics(y_true, compute_dtype, ranking)

    def _spheres_of(self, labels: tf.Tensor) -> Spheres:
        if not self.training:
            return self.layer.spheres(self.flat_features, labels)
        return self._learning_batch.spheres(labels)

    @functools.cached_property
    def _learning_batch(self) -> LearningBatch:
        return self.layer.learning_batch(self.flat_features)

    @property
    def _learns(self) -> bool:
        return bool(self.training and self.layer.trainable)


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
