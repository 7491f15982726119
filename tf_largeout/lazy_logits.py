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
from tf_largeout.labels import as_label_matrix, first_occurrences
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
        training: Whether the step trains; losses are exact where it does not. None where
            nobody said: taken as False.

    Attributes:
        candidates: The `Candidates` that a sampled loss scored in this step, or None.
    """

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None):
        self.layer = layer
        self.features = features
        self.training = None if training is None else bool(training)
        self.candidates: Candidates | None = None
        self._label_matrices: dict[int, tuple[Any, tf.Tensor]] = {}
        self._distinct: dict[int, tf.Tensor] = {}
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

    def distinct_labels(self, y_true) -> tf.Tensor:
        """Tells, bool `[B, L]`, which labels are neither padding nor repeats in their row."""
        labels = self.label_matrix(y_true)
        if id(labels) not in self._distinct:
            self._distinct[id(labels)] = first_occurrences(labels)
        return self._distinct[id(labels)]

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
