"""The tag that joins an output layer to its losses and metrics.

An output layer returns true logits `[..., num_classes]` and attaches a tag to that tensor. Our
losses and metrics work from the tag and never touch the logits, so `tf.function` prunes the
product of all classes from the step; every other consumer still gets true logits.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import tensorflow as tf

from tf_largeout.classes.class_matrix import AbsoluteStatistics, ClassMatrix, ClassStatistics
from tf_largeout.keras_internals import is_symbolic
from tf_largeout.tags.labels import as_label_matrix, first_occurrences
from tf_largeout.types import TensorLike

_ATTRIBUTE = "_largeout_tag"
_scopes = threading.local()
Tag = TypeVar("Tag", bound="OutputTag")


class OutputTag:
    """What losses and metrics ask of an output layer in one step.

    A layer whose losses ask for more gives a subclass of its own.

    Args:
        layer: The output layer; it has a `name` and a `class_matrix`.
        features: Its input, `[..., dim]`.
        training: Whether the step trains; losses are exact where it does not. None where
            nobody said: taken as False.

    Attributes:
        given_by: The layers that give such tags, for messages.
        losses_to_take: What a loss that needs another tag says to take instead of it.
        loss: The loss of this library that was called on the output; None before that.
    """

    given_by = "`LargeOutput`, `FactoredOutput` or `HierarchicalOutput`"
    losses_to_take = "`SoftmaxLoss`, or a loss that is made for that layer"

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None) -> None:
        self.layer = layer
        self.features = features
        self.training = None if training is None else bool(training)
        self.loss: Any = None
        self._label_matrices: dict[int, tuple[Any, tf.Tensor]] = {}
        self._distinct: dict[int, tf.Tensor] = {}
        self._statistics: dict[int, ClassStatistics] = {}
        self._rounded: dict[int, ClassStatistics] = {}  # by bfloat16 products
        self._absolute: dict[int, AbsoluteStatistics] = {}
        self._absolute_ranks: dict[int, tf.Tensor] = {}
        self._taylor_ranks: dict[int, tf.Tensor] = {}

    @property
    def class_matrix(self) -> ClassMatrix:
        """The rows of the layer's classes."""
        return self.layer.class_matrix

    @property
    def num_classes(self) -> int:
        """The number of the layer's classes."""
        return self.class_matrix.num_classes

    def take_loss(self, loss: Any) -> None:
        """Keeps the loss. The layer takes the ranking of a loss that trains it."""
        self.loss = loss
        self.layer.follow(loss, replace=bool(self.training))

    def attach_to(self, logits: tf.Tensor) -> tf.Tensor:
        """Attaches this tag to `logits` and returns them."""
        setattr(logits, _ATTRIBUTE, self)
        return logits

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The features as `[B, dim]`, checked to be finite."""
        message = (
            f"The features that enter layer '{self.layer.name}' must be finite. If they were "
            "in the steps before, lower the learning rate, of the model or of the layer"
        )
        # Not their gradient: under loss scaling it overflows now and then, and the step is
        # skipped.
        check = tf.debugging.check_numerics(tf.stop_gradient(self.features), message)
        with tf.control_dependencies([check]):
            return tf.reshape(self.features, [-1, self.features.shape[-1]])

    def label_matrix(self, y_true: TensorLike) -> tf.Tensor:
        """Labels of any accepted form as int64 `[B, L]`, checked, padded with -1.

        The same `y_true` gives the same tensor, so all losses and metrics share it.
        """
        if id(y_true) not in self._label_matrices:
            matrix = as_label_matrix(y_true, self.features, self.num_classes)
            self._label_matrices[id(y_true)] = (y_true, matrix)
            self._label_matrices[id(matrix)] = (matrix, matrix)
        return self._label_matrices[id(y_true)][1]

    def distinct_labels(self, y_true: TensorLike) -> tf.Tensor:
        """Tells, bool `[B, L]`, which labels are neither padding nor repeats in their row."""
        labels = self.label_matrix(y_true)
        if id(labels) not in self._distinct:
            self._distinct[id(labels)] = first_occurrences(labels)
        return self._distinct[id(labels)]

    def class_statistics(
        self, y_true: TensorLike, compute_dtype: str = "float32"
    ) -> ClassStatistics:
        """The exact `ClassStatistics`; all losses and metrics of a step share one pass.

        Args:
            y_true: The labels.
            compute_dtype: "float32" or "bfloat16"; each makes a pass of its own.
        """
        labels = self.label_matrix(y_true)
        known = self._statistics if compute_dtype == "float32" else self._rounded
        if id(labels) not in known:
            known[id(labels)] = self.class_matrix.statistics(
                self.flat_features, labels, compute_dtype, bool(self.training)
            )
        return known[id(labels)]

    def absolute_statistics(self, y_true: TensorLike) -> AbsoluteStatistics:
        """The exact `AbsoluteStatistics`, of `|logit|`, by one pass that all share."""
        labels = self.label_matrix(y_true)
        if id(labels) not in self._absolute:
            statistics = self.class_matrix.absolute_statistics(self.flat_features, labels)
            self._absolute[id(labels)] = statistics
        return self._absolute[id(labels)]

    def known_statistics(
        self, y_true: TensorLike, absolute: bool = False
    ) -> ClassStatistics | AbsoluteStatistics | None:
        """What is known exactly: outside of training, and where the loss made the pass.

        In training it is what the loss found, in its `compute_dtype`.

        Args:
            y_true: The labels.
            absolute: Whether the `AbsoluteStatistics` are meant, not the `ClassStatistics`.
        """
        labels = self.label_matrix(y_true)
        if not self.training:
            return (
                self.absolute_statistics(labels) if absolute else self.class_statistics(labels)
            )
        if absolute:
            return self._absolute.get(id(labels))
        return self._statistics.get(id(labels), self._rounded.get(id(labels)))

    def known_cross_entropies(
        self, y_true: TensorLike, absolute: bool | None = None
    ) -> tf.Tensor | None:
        """The mean of `-log p(label)` over the labels of a row, float32 `[B]`, or None.

        A label that a row has twice counts once. It is None in a step that does not know it.

        Args:
            y_true: The labels.
            absolute: Whether p is the softmax of `|logit|`, not of the logits; None for the
                one that the layer's `ranking` names.
        """
        labels = self.label_matrix(y_true)
        absolute = self.layer.ranking == "absolute" if absolute is None else absolute
        known = self.known_statistics(labels, absolute)
        if known is None:
            return None
        return known.log_partition - mean_over(self.distinct_labels(labels), known.true_logits)

    def label_ranks(self, y_true: TensorLike, absolute: bool | None = None) -> tf.Tensor | None:
        """Ranks of the labels, int64 `[B, L]`, without O(num_classes) work in training.

        Exact outside of training, and where the loss made the exact pass already. Else what
        `estimated_ranks` gives.

        Args:
            y_true: The labels.
            absolute: Whether classes are ranked by `|logit|`, or by the logit; None for the
                layer's `ranking`.
        """
        labels = self.label_matrix(y_true)
        matrix, absolute = self.layer.ranked_by(absolute)
        if matrix is not self.class_matrix:
            return None if self.training else self._ranks_in(matrix, labels)
        known = self.known_statistics(labels, absolute)
        if known is None:
            return self.estimated_ranks(labels, absolute)
        if isinstance(known, ClassStatistics):
            return known.ranks
        if id(labels) not in self._absolute_ranks:
            self._absolute_ranks[id(labels)] = self.class_matrix.absolute_ranks(
                self.flat_features, labels, known.true_logits
            )
        return self._absolute_ranks[id(labels)]

    def _ranks_in(self, matrix: ClassMatrix, labels: tf.Tensor) -> tf.Tensor:
        """Exact ranks by the absolute logits of another matrix, by one pass that all share."""
        if id(labels) not in self._taylor_ranks:
            scores = matrix.absolute_statistics(self.flat_features, labels).true_logits
            ranks = matrix.absolute_ranks(self.flat_features, labels, scores)
            self._taylor_ranks[id(labels)] = ranks
        return self._taylor_ranks[id(labels)]

    def estimated_ranks(self, labels: tf.Tensor, absolute: bool = False) -> tf.Tensor | None:
        """Ranks as far as this training step can tell, int64 `[B, L]`; None: it cannot."""
        return None


def mean_over(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The mean of each row of `values` over the places where `counts`; 0 if there are none."""
    total = tf.reduce_sum(tf.where(counts, values, 0), axis=-1)
    number = tf.reduce_sum(tf.cast(counts, values.dtype), axis=-1)
    return tf.math.divide_no_nan(total, number)


def tag_of(y_pred: tf.Tensor, asked_by: str, kind: type[Tag]) -> Tag | None:
    """The tag of `y_pred`; None while Keras traces with bare placeholders.

    Args:
        y_pred: What a loss or metric was given as predictions.
        asked_by: Name of that loss or metric, for the error.
        kind: The class of tags that it works from.

    Raises:
        ValueError: If `y_pred` is not the direct output of a layer that gives such tags.
    """
    found = getattr(y_pred, _ATTRIBUTE, None)
    if isinstance(found, kind):
        return found
    if found is not None:
        raise ValueError(
            f"{asked_by} cannot be used with the {type(found.layer).__name__} "
            f"'{found.layer.name}': it works with a {kind.given_by}. Take "
            f"{found.losses_to_take}."
        )
    if is_symbolic(y_pred):
        return None
    raise ValueError(
        f"{asked_by} must be given the direct output of a {kind.given_by} layer. Received "
        f"`y_pred` of shape {getattr(y_pred, 'shape', '?')} that no such layer made. Make "
        "it the last layer of the model: no softmax, reshape or cast may follow it, and no "
        "TimeDistributed be around it, as it takes [batch, time, dim] itself. For logits of "
        "another layer use the losses of Keras."
    )


@contextlib.contextmanager
def logits_left_out() -> Iterator[None]:
    """Inside, output layers of this thread attach their tags to zeros, not to logits.

    For graphs that are written to files: nothing prunes those before they are converted.
    """
    before = are_logits_left_out()
    _scopes.logits_left_out = True
    try:
        yield
    finally:
        _scopes.logits_left_out = before


def are_logits_left_out() -> bool:
    """Whether this thread is inside of `logits_left_out`."""
    return getattr(_scopes, "logits_left_out", False)
