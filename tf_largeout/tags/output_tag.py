"""The tag that connects an output layer to its losses and metrics.

An output layer returns true logits `[..., num_classes]` and attaches a tag to that tensor. The
losses and metrics of this library use the tag and never the logits. So `tf.function` removes
the product with all classes from the step. Other users of the output, such as `predict` and
Keras's losses, get the true logits.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import search_without
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.keras_internals import is_symbolic
from tf_largeout.tags import exclusions
from tf_largeout.tags.labels import as_label_matrix, as_target_matrix, first_occurrences
from tf_largeout.tags.selected_rows import SelectedRows
from tf_largeout.types import TensorLike

_ATTRIBUTE = "_largeout_tag"
_scopes = threading.local()
Tag = TypeVar("Tag", bound="OutputTag")


class Selection(NamedTuple):
    """Some of the `B` examples of a step.

    Attributes:
        tag: The `OutputTag` of these `P` examples.
        labels: int64 `[P, L]`, padded with -1.
        rows: The positions of these examples among the `B`; None for all `B` examples.
    """

    tag: Any
    labels: tf.Tensor
    rows: SelectedRows | None = None

    def take(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the rows of `values`, `[B, ...]`, of these examples."""
        return values if self.rows is None else self.rows.take(values)

    def put_back(self, values: tf.Tensor) -> tf.Tensor:
        """Returns `values`, `[P, ...]`, as `[B, ...]`, with 0 for the other examples."""
        return values if self.rows is None else self.rows.put_back(values)


class OutputTag:
    """What losses and metrics need from an output layer in one step.

    A layer whose losses need more information returns an object of a subclass.

    Args:
        layer: The output layer, a `ClassOutput`.
        features: Its input, `[..., dim]`.
        training: Whether the step trains; otherwise losses are exact. None counts as False.

    Attributes:
        given_by: The layers that create such tags, for messages.
        losses_to_take: The losses that these layers support, for messages.
        loss: The loss of this library that was called on the output; None before the call.
    """

    given_by = "`LargeOutput`, `FactoredOutput` or `HierarchicalOutput`"
    losses_to_take = "`SoftmaxLoss`, or a loss that is made for that layer"

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None) -> None:
        self.layer = layer
        self.features = features
        self.training = None if training is None else bool(training)
        self.loss: Any = None
        # By id of the labels and ignored class.
        self._label_matrices: dict[tuple[int, int | None], tuple[Any, tf.Tensor]] = {}
        self._label_weights: dict[int, tf.Tensor] = {}
        self._distinct: dict[int, tf.Tensor] = {}
        self._have_labels: dict[int, tf.Tensor] = {}
        self._selections: dict[tuple[int, int], tuple[tf.Tensor, Selection]] = {}
        self._excluded: dict[int, tf.Tensor | None] = {}
        self._best: dict[tuple[str, int], tuple[int, tf.Tensor]] = {}
        # By ranking, dtype of the products, and id of the labels.
        self._statistics: dict[tuple[str, str, int], ClassStatistics] = {}
        self._mean_logits: dict[str, tf.Tensor] = {}

    @property
    def class_matrix(self) -> ClassScorer:
        """The layer's classes, which it scores by their logits."""
        return self.layer.class_matrix

    @property
    def num_classes(self) -> int:
        """The number of the layer's classes."""
        return self.class_matrix.num_classes

    def take_loss(self, loss: Any) -> None:
        """Stores the loss. In training, the layer ranks by the `ranking` of this loss."""
        self.loss = loss
        self.layer.follow(loss, replace=bool(self.training))

    def attach_to(self, logits: tf.Tensor) -> tf.Tensor:
        """Attaches this tag to `logits` and returns them."""
        setattr(logits, _ATTRIBUTE, self)
        return logits

    @functools.cached_property
    def checked_features(self) -> tf.Tensor:
        """The features as `[B, dim]`, checked to be finite."""
        message = (
            f"The features that enter layer '{self.layer.name}' must be finite. If they were "
            "finite in earlier steps, lower the learning rate of the model or of the layer"
        )
        features = checks.finite(self.features, message)
        return tf.reshape(features, [-1, features.shape[-1]])

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The vectors that are multiplied by the class rows: `checked_features`."""
        return self.checked_features

    def label_matrix(self, y_true: TensorLike) -> tf.Tensor:
        """Checks labels of any accepted form, and returns them as int64 `[B, L]`.

        The padding is -1. Labels equal to the `ignore_class` of this step's loss, and columns
        of excluded classes (see `exclusions`), also become -1. All losses and metrics share the
        tensor for one `y_true`. If the loss accepts soft targets, or no loss was called,
        `y_true` can be a `tf.SparseTensor`. Its classes with positive targets are then the
        labels.
        """
        ignored = getattr(self.loss, "ignore_class", None)
        if (id(y_true), ignored) not in self._label_matrices:
            matrix = self._new_label_matrix(y_true, ignored)
            self._label_matrices[id(y_true), ignored] = (y_true, matrix)
            self._label_matrices[id(matrix), ignored] = (matrix, matrix)
        return self._label_matrices[id(y_true), ignored][1]

    def _new_label_matrix(self, y_true: TensorLike, ignored: int | None) -> tf.Tensor:
        ids, weights = y_true, None
        takes_targets = getattr(self.loss, "takes_soft_targets", self.loss is None)
        if isinstance(y_true, tf.SparseTensor) and takes_targets:
            ids, weights = as_target_matrix(y_true, self.features, self.num_classes)
        columns = as_label_matrix(ids, self.features, self.num_classes, ignored)
        matrix, excluded = exclusions.split(columns)
        self._excluded[id(matrix)] = excluded
        if weights is not None:
            weights = tf.reshape(weights, tf.shape(matrix))
            self._label_weights[id(matrix)] = tf.where(matrix >= 0, weights, 0)
        return matrix

    def label_weights(self, y_true: TensorLike) -> tf.Tensor | None:
        """Returns the soft targets of the labels, float32 `[B, L]`, 0 at padding.

        The result is None for labels without targets. Each then has the target `1 / #labels`.
        """
        return self._label_weights.get(id(self.label_matrix(y_true)))

    def mean_logits(self, ranking: str = "logit") -> tf.Tensor:
        """Returns the mean of the logits of all classes, float32 `[B]`; the step shares it.

        Args:
            ranking: As in `class_statistics`.
        """
        if ranking not in self._mean_logits:
            self._mean_logits[ranking] = self.layer.scorer(ranking).mean_logits(
                self.flat_features, bool(self.training)
            )
        return self._mean_logits[ranking]

    def have_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns bool `[B]`: which examples have a label. Losses and metrics share the result.

        Args:
            labels: int64 `[B, L]`, from `label_matrix`.
        """
        if id(labels) not in self._have_labels:
            self._have_labels[id(labels)] = tf.reduce_any(labels >= 0, axis=-1)
        return self._have_labels[id(labels)]

    def select(self, labels: tf.Tensor, counted: tf.Tensor) -> Selection:
        """Returns the examples that count, so that a step does not score the others.

        Most positions of padded sequences have no label. If no example counts, the result has
        the first one. For features `[batch, dim]`, it has all examples. The losses and metrics
        of a step share the result for the same arguments.

        Args:
            labels: int64 `[B, L]`, from `label_matrix`.
            counted: Bool `[B]`, for example from `have_labels`.
        """
        key = id(labels), id(counted)
        if key not in self._selections:
            self._selections[key] = counted, self._select(labels, counted)
        selection = self._selections[key][1]
        selection.tag.loss = self.loss
        return selection

    def _select(self, labels: tf.Tensor, counted: tf.Tensor) -> Selection:
        if self.features.shape.rank < 3:
            return Selection(self, labels)
        rows = SelectedRows.where(counted)
        selected_labels = tf.gather(labels, rows.places)
        return Selection(self._part(labels, selected_labels, rows), selected_labels, rows)

    def _part(
        self, labels: tf.Tensor, selected_labels: tf.Tensor, rows: SelectedRows
    ) -> "OutputTag":
        """Returns a tag of some examples that knows their labels."""
        tag = self.layer.make_tag(self.features, self.training)
        tag.features = tag.checked_features = rows.take(self.checked_features)
        ignored = getattr(self.loss, "ignore_class", None)
        tag._label_matrices[id(selected_labels), ignored] = selected_labels, selected_labels
        excluded, weights = self._excluded[id(labels)], self._label_weights.get(id(labels))
        tag._excluded[id(selected_labels)] = None if excluded is None else rows.take(excluded)
        if weights is not None:
            tag._label_weights[id(selected_labels)] = rows.take(weights)
        return tag

    def distinct_labels(self, y_true: TensorLike) -> tf.Tensor:
        """Returns bool `[B, L]`, True where a label occurs in its example for the first time.

        Padding is False.
        """
        labels = self.label_matrix(y_true)
        if id(labels) not in self._distinct:
            self._distinct[id(labels)] = first_occurrences(labels)
        return self._distinct[id(labels)]

    def class_statistics(
        self, y_true: TensorLike, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics`; all losses and metrics of a step share them.

        Args:
            y_true: The labels.
            compute_dtype: "float32" or "bfloat16"; each takes its own pass over the classes.
            ranking: "logit" for statistics of the logits, "absolute" of `|logit|`, "taylor" of
                `|1 + logit|`.
        """
        labels = self.label_matrix(y_true)
        key = ranking, compute_dtype, id(labels)
        if key not in self._statistics:
            self._statistics[key] = self._compute_statistics(labels, compute_dtype, ranking)
        return self._statistics[key]

    def _compute_statistics(
        self, labels: tf.Tensor, compute_dtype: str, ranking: str
    ) -> ClassStatistics:
        """Returns the statistics; the ranks are those among classes that are not excluded."""
        scorer, excluded = self.layer.scorer(ranking), self._excluded[id(labels)]
        features = self.flat_features
        found = scorer.statistics(features, labels, compute_dtype, bool(self.training))
        if excluded is None or self.training:
            return found

        def ranks() -> tf.Tensor:
            among_all = found.ranks  # outside of the branches, which both use it

            def among_the_rest() -> tf.Tensor:
                scores = scorer.ranked_scores(features, tf.maximum(labels, excluded))
                is_new = first_occurrences(excluded)
                return exclusions.ranks_without(
                    among_all, scores, labels, excluded, is_new, self.num_classes
                )

            has_any = tf.reduce_any(excluded >= 0)
            return tf.cond(has_any, among_the_rest, lambda: among_all)

        return ClassStatistics(found.log_partition, found.true_logits, ranks)

    def known_statistics(
        self, y_true: TensorLike, ranking: str = "logit"
    ) -> ClassStatistics | None:
        """Returns `class_statistics`, or None if a training step has not computed them.

        In training, the loss computes them, in its `compute_dtype`.

        Args:
            y_true: The labels.
            ranking: As in `class_statistics`.
        """
        labels = self.label_matrix(y_true)
        if not self.training:
            return self.class_statistics(labels, ranking=ranking)
        self.layer.scorer(ranking)  # raises an error if the layer does not support it
        for dtype in ("float32", "bfloat16"):
            if (ranking, dtype, id(labels)) in self._statistics:
                return self._statistics[ranking, dtype, id(labels)]
        return None

    def known_cross_entropies(
        self, y_true: TensorLike, absolute: bool | None = None
    ) -> tf.Tensor | None:
        """Returns the mean of `-log p(label)` over the labels of each example, float32 `[B]`.

        Repeated labels of an example count once. The result is None in a training step in which
        the probabilities are not computed.

        Args:
            y_true: The labels.
            absolute: True if p is the softmax of `|logit|`, False if p is the softmax of the
                logits. None uses the softmax of the loss of this step. If there is no loss, it
                uses that of the layer's `ranking`.
        """
        labels = self.label_matrix(y_true)
        ranking = getattr(self.loss, "ranking", None) if absolute is None else None
        is_absolute = (ranking or self.layer.ranking_by(absolute)) == "absolute"
        known = self.known_statistics(labels, "absolute" if is_absolute else "logit")
        if known is None:
            return None
        return known.log_partition - mean_over(self.distinct_labels(labels), known.true_logits)

    def label_ranks(self, y_true: TensorLike, absolute: bool | None = None) -> tf.Tensor | None:
        """Returns ranks of the labels, int64 `[B, L]`, without O(num_classes) work in training.

        The ranks are exact outside training, and in training if the loss has made a pass over
        all classes. Otherwise the result is from `estimated_ranks`.

        Args:
            y_true: The labels.
            absolute: Whether to rank by `|logit|`, or by the logit; None for the layer's
                `ranking`.
        """
        labels, ranking = self.label_matrix(y_true), self.layer.ranking_by(absolute)
        known = self.known_statistics(labels, ranking)
        return self.estimated_ranks(labels, ranking) if known is None else known.ranks

    def best_classes(
        self, y_true: TensorLike, k: int, absolute: bool | None = None
    ) -> tf.Tensor | None:
        """Returns the `k` best classes that are not excluded, int64 `[B, k]`; None in training.

        They are best first, padded with -1 if fewer classes are left. This takes a separate
        pass over the classes. All metrics of a step share this pass if the metric with the
        largest `k` comes first.

        Args:
            y_true: The labels, which may exclude classes.
            k: At least 1.
            absolute: As in `label_ranks`.
        """
        if self.training:
            return None
        labels, ranking = self.label_matrix(y_true), self.layer.ranking_by(absolute)
        key = ranking, id(labels)
        if key not in self._best or self._best[key][0] < k:
            scorer, excluded = self.layer.scorer(ranking), self._excluded[id(labels)]
            features = tf.cast(self.flat_features, tf.float32)
            search = functools.partial(scorer.top_k, features)
            if excluded is not None:
                excluded = _without_padding(excluded)
            _, ids = search_without(search, self.num_classes, excluded, k)
            self._best[key] = k, ids
        return self._best[key][1][:, :k]

    def estimated_ranks(self, labels: tf.Tensor, ranking: str = "logit") -> tf.Tensor | None:
        """Returns ranks that this training step can estimate, int64 `[B, L]`, or None."""
        return None


def _without_padding(ids: tf.Tensor) -> tf.Tensor:
    """Drops the columns of `ids`, `[B, n]`, that have only padding once padding comes last."""
    width = tf.reduce_max(tf.reduce_sum(tf.cast(ids >= 0, tf.int32), axis=1))
    return tf.sort(ids, axis=1, direction="DESCENDING")[:, : tf.maximum(width, 0)]


def mean_over(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns the mean of `values` over the last axis where `counts` is true; 0 if none is."""
    total = tf.reduce_sum(tf.where(counts, values, 0), axis=-1)
    number = tf.reduce_sum(tf.cast(counts, values.dtype), axis=-1)
    return tf.math.divide_no_nan(total, number)


def attached_tag(y_pred: Any) -> OutputTag | None:
    """Returns the tag of a tensor; None if it is not the direct output of an output layer."""
    found: OutputTag | None = getattr(y_pred, _ATTRIBUTE, None)
    return found


def tag_of(y_pred: tf.Tensor, asked_by: str, kind: type[Tag]) -> Tag | None:
    """Returns the tag of `y_pred`; None while Keras traces the model with placeholders.

    Args:
        y_pred: The predictions that a loss or metric received.
        asked_by: Name of that loss or metric, for the error.
        kind: The class of tags that it needs.

    Raises:
        ValueError: If `y_pred` is not the direct output of a layer that creates such tags.
    """
    found = attached_tag(y_pred)
    if isinstance(found, kind):
        return found
    if found is not None:
        raise ValueError(
            f"{asked_by} cannot be used with the {type(found.layer).__name__} "
            f"'{found.layer.name}': it works with a {kind.given_by}. Use "
            f"{found.losses_to_take}."
        )
    if is_symbolic(y_pred):
        return None
    raise ValueError(
        f"{asked_by} needs the direct output of a {kind.given_by} layer. Received: `y_pred` of "
        f"shape {getattr(y_pred, 'shape', '?')}, which is not the output of such a layer. Make "
        "it the last layer of the model: no softmax, reshape or cast may follow it. Do not put "
        "it in a TimeDistributed, because it accepts [batch, time, dim]. For logits of another "
        "layer, use Keras's losses."
    )


@contextlib.contextmanager
def logits_left_out() -> Iterator[None]:
    """Context in which output layers of this thread attach their tags to zeros, not logits.

    It is used for graphs that are saved to files, because converters read these graphs before
    unused operations are removed.
    """
    before = are_logits_left_out()
    _scopes.logits_left_out = True
    try:
        yield
    finally:
        _scopes.logits_left_out = before


def are_logits_left_out() -> bool:
    """Returns whether this thread is inside `logits_left_out`."""
    return getattr(_scopes, "logits_left_out", False)
