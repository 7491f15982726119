"""The tag of hierarchical outputs, whose logits are log-probabilities."""

import tensorflow as tf

from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.tags.compile_warnings import warn_of_dense_optimizer
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import TensorLike


class LogProbabilities(OutputTag):
    """Log-probabilities, which are cheap to compute exactly for a few classes.

    Args:
        layer: The `HierarchicalOutput` or `HuffmanOutput` that computed them; its
            `class_matrix` is a `ClusteredMatrix` or a `TreeMatrix`.
        features: Its input, `[..., dim]`.
        training: Whether the step trains.
    """

    given_by = "`HierarchicalOutput`"
    losses_to_take = "`HierarchicalSoftmaxLoss` or `SoftmaxLoss`"

    def __init__(self, layer: object, features: tf.Tensor, training: bool | None) -> None:
        super().__init__(layer, features, training)
        self._scored: dict[int, tuple[tf.Tensor, tf.Tensor | None]] = {}

    def label_log_probabilities(self, y_true: TensorLike) -> tf.Tensor:
        """Returns the exact log-probabilities of the labels, float32 `[B, L]`; 0 at padding.

        It takes O(num_clusters + size of the labels' clusters) time per example, or O(depth) in
        a binary tree. All losses and metrics share the result for the same labels.
        """
        return self._score(self.label_matrix(y_true))[0]

    def known_statistics(
        self, y_true: TensorLike, ranking: str = "logit"
    ) -> ClassStatistics | None:
        """Like `OutputTag.known_statistics`; in training also what a loss has computed.

        In training, these are the exact log-probabilities of `label_log_probabilities`. Their
        ranks are those among the classes of the label's cluster. They are never above the exact
        ranks. In a binary tree, they are not known.

        Raises:
            ValueError: If `ranking` is not "logit".
        """
        labels = self.label_matrix(y_true)
        known = super().known_statistics(labels, ranking)
        if known is not None or id(labels) not in self._scored:
            return known
        log_probabilities, ranks = self._score(labels)
        return ClassStatistics(tf.zeros(tf.shape(labels)[:1]), log_probabilities, ranks)

    def _score(self, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        if id(labels) not in self._scored:
            if self.training:
                warn_of_dense_optimizer(self.layer)
            scores, ranks = self.class_matrix.class_log_probabilities(  # type: ignore[attr-defined]
                self.flat_features, labels
            )
            self._scored[id(labels)] = tf.where(labels >= 0, scores, 0), ranks
        return self._scored[id(labels)]
