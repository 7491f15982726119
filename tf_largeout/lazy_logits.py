"""The tag that joins `LargeOutput` to its losses and metrics.

`LargeOutput.call` returns true logits `[..., num_classes]` and tags that tensor with a
`LazyLogits`: the layer, its input features and whether the step trains. Our losses and
metrics work from the tag and never touch the logits, so `tf.function` prunes the product of
all classes from the step; every other consumer still gets true logits.
"""

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.candidates import Candidates
from tf_largeout.ops import candidate_ops, class_scan_ops

_TAG = "_largeout_lazy_logits"


class ClassStatistics(NamedTuple):
    """What one exact pass over all classes tells about a batch of `B` rows.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(logit)`.
        true_logits: float32 `[B, L]`, logits of the labels; 0 in padded places.
        ranks: int64 `[B, L]`, how many classes score higher than the label (of equal ones,
            those with a lower id); `num_classes` in padded places.
    """

    log_partition: tf.Tensor
    true_logits: tf.Tensor
    ranks: tf.Tensor


class LazyLogits:
    """Logits that are computed only for the classes somebody asks for.

    Args:
        layer: The `LargeOutput` that made the logits.
        features: Its input, `[..., dim]`.
        training: Whether the step trains; losses are exact where it does not.

    Attributes:
        candidates: The `Candidates` that a sampled loss scored in this step, or None.
    """

    def __init__(self, layer: Any, features: tf.Tensor, training: bool):
        self.layer = layer
        self.features = features
        self.training = training
        self.candidates: Candidates | None = None
        self._label_matrices: dict[int, tuple[Any, tf.Tensor]] = {}
        self._statistics: dict[int, ClassStatistics] = {}

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The features as `[B, dim]`, checked to be finite."""
        message = f"The features that enter layer '{self.layer.name}' must be finite"
        # Not their gradient: under loss scaling it overflows now and then, and the step is
        # skipped.
        check = tf.debugging.check_numerics(tf.stop_gradient(self.features), message)
        with tf.control_dependencies([check]):
            return tf.reshape(self.features, [-1, self.features.shape[-1]])

    def label_matrix(self, y_true) -> tf.Tensor:
        """Labels of any accepted form as int64 `[B, L]`, checked, padded with -1.

        The same `y_true` gives the same tensor, so all losses and metrics share it.
        """
        if id(y_true) not in self._label_matrices:
            matrix = as_label_matrix(y_true, self.features, self.layer.num_classes)
            self._label_matrices[id(y_true)] = (y_true, matrix)
            self._label_matrices[id(matrix)] = (matrix, matrix)
        return self._label_matrices[id(y_true)][1]

    def class_statistics(self, y_true) -> ClassStatistics:
        """The exact `ClassStatistics`; all losses and metrics of a step share one pass."""
        labels = self.label_matrix(y_true)
        if id(labels) not in self._statistics:
            embeddings, bias = self.layer.local_variables()
            features = tf.cast(self.flat_features, tf.float32)
            self._statistics[id(labels)] = ClassStatistics(
                *class_scan_ops.class_statistics(features, embeddings, bias, labels)
            )
        return self._statistics[id(labels)]

    def known_statistics(self, y_true) -> ClassStatistics | None:
        """The exact `ClassStatistics` outside of training, and where the loss made the pass."""
        if not self.training or id(self.label_matrix(y_true)) in self._statistics:
            return self.class_statistics(y_true)
        return None

    def label_ranks(self, y_true) -> tf.Tensor | None:
        """Ranks of the labels, int64 `[B, L]`, without O(num_classes) work in training.

        Exact outside of training, and where the loss made the exact pass already. Else the
        rank among the classes that the sampled loss drew, as a rule far below the exact one;
        None where no loss drew any.
        """
        labels = self.label_matrix(y_true)
        known = self.known_statistics(labels)
        if known is not None:
            return known.ranks
        if self.candidates is None:
            return None
        others = self.candidates.negatives(labels).logits()
        return candidate_ops.candidate_ranks(others, self.candidates.true_logits, labels)


def tag(logits: tf.Tensor, lazy: LazyLogits) -> tf.Tensor:
    """Attaches `lazy` to `logits` and returns them."""
    setattr(logits, _TAG, lazy)
    return logits


def lazy_logits(y_pred, asked_by: str) -> LazyLogits | None:
    """The tag of `y_pred`; None while Keras traces with bare placeholders.

    Args:
        y_pred: What a loss or metric was given as predictions.
        asked_by: Name of that loss or metric, for the error.

    Raises:
        ValueError: If `y_pred` is not the direct output of a `LargeOutput`.
    """
    lazy = getattr(y_pred, _TAG, None)
    if lazy is None and not _in_symbolic_build(y_pred):
        raise ValueError(
            f"{asked_by} must be given the direct output of a `LargeOutput` layer. Received "
            f"`y_pred` of shape {getattr(y_pred, 'shape', '?')} that no such layer made. Make "
            "the `LargeOutput` the last layer of the model: no softmax, reshape or cast may "
            "follow it. For logits of another layer use the losses of Keras."
        )
    return lazy


def _in_symbolic_build(y_pred) -> bool:
    """Whether Keras is inferring shapes, where placeholders stand for the predictions."""
    if isinstance(y_pred, keras.KerasTensor):
        return True
    graph = None if tf.executing_eagerly() else getattr(y_pred, "graph", None)
    return getattr(graph, "name", "").startswith("scratch_graph")


def as_label_matrix(y_true, features: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Class ids as int64 `[B, L]`, where `B` is the product of the leading dimensions.

    Args:
        y_true: Integer class ids. Of shape `features.shape[:-1]`: one class a position. With
            one more dimension: several classes a position, padded with -1; or ragged there.
        features: `[..., dim]`.
        num_classes: Ids must be -1 or in `[0, num_classes)`.

    Raises:
        ValueError: If the labels are not integers, or their shape does not fit the features.
        tf.errors.InvalidArgumentError: If an id is out of range.
    """
    if isinstance(y_true, tf.RaggedTensor):
        y_true = y_true.to_tensor(-1)
    labels = tf.convert_to_tensor(y_true)
    if not labels.dtype.is_integer:
        raise ValueError(
            "Labels must be integer class ids (int32 or int64), [batch] or [batch, max_labels] "
            f"padded with -1. Received labels of dtype {labels.dtype.name}."
        )
    if labels.shape.rank is None:  # such as what `tf.numpy_function` gives
        labels = _check_range(tf.cast(labels, tf.int64), num_classes)
        positions = tf.reduce_prod(tf.shape(features)[:-1])
        return tf.reshape(labels, [positions, tf.size(labels) // tf.maximum(positions, 1)])
    several = labels.shape.rank == features.shape.rank
    leading = labels.shape[:-1] if several else labels.shape
    if not leading.is_compatible_with(features.shape[:-1]):
        raise ValueError(
            f"For features of shape {features.shape} labels must have the shape "
            f"{features.shape[:-1]} (one class a position) or that and one more dimension "
            f"(several classes, padded with -1). Received labels of shape {labels.shape}."
        )
    labels = _check_range(tf.cast(labels, tf.int64), num_classes)
    if not several:
        return tf.reshape(labels, [-1, 1])
    shape = tf.shape(labels)  # whose last number may be 0
    matrix = tf.reshape(labels, [tf.reduce_prod(shape[:-1]), shape[-1]])
    return tf.ensure_shape(matrix, [None, labels.shape[-1]])


def _check_range(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    in_range = tf.reduce_all((labels >= -1) & (labels < num_classes))
    message = f"Labels must be class ids in [0, {num_classes}), or -1 as padding. Received ids"
    check = tf.debugging.Assert(
        in_range, [message, "from", tf.reduce_min(labels), "to", tf.reduce_max(labels)]
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(labels)
