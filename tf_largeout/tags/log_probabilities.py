"""The tag of `HierarchicalOutput`: logits that are log-probabilities already."""

import tensorflow as tf

from tf_largeout.classes.class_matrix import AbsoluteStatistics, ClassStatistics
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import TensorLike


class LogProbabilities(OutputTag):
    """Log-probabilities, of which those of a few classes are cheap and exact.

    Args:
        layer: The `HierarchicalOutput` that made them; its `class_matrix` is a
            `ClusteredMatrix`.
        features: Its input, `[..., dim]`.
        training: Whether the step trains.
    """

    given_by = "`HierarchicalOutput`"
    losses_to_take = "`HierarchicalSoftmaxLoss` or `SoftmaxLoss`"

    def __init__(self, layer: object, features: tf.Tensor, training: bool | None) -> None:
        super().__init__(layer, features, training)
        self._scored: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}

    def label_log_probabilities(self, y_true: TensorLike) -> tf.Tensor:
        """The log-probabilities of the labels, float32 `[B, L]`; 0 in padded places.

        Exact, in O(num_clusters + size of their clusters) per row. All who ask for the same
        labels share one computation.
        """
        return self._score(self.label_matrix(y_true))[0]

    def known_statistics(
        self, y_true: TensorLike, absolute: bool = False
    ) -> ClassStatistics | AbsoluteStatistics | None:
        """What `OutputTag.known_statistics` knows, and in training what a loss has scored.

        Of the labels that `label_log_probabilities` was asked for these are the exact
        log-probabilities, with ranks among the classes of their clusters: never above the exact
        ranks.

        Raises:
            ValueError: If `absolute` is true.
        """
        labels = self.label_matrix(y_true)
        if absolute:
            return self.absolute_statistics(labels)  # says why there are none
        known = super().known_statistics(labels)
        if known is not None or id(labels) not in self._scored:
            return known
        log_probabilities, ranks = self._score(labels)
        return ClassStatistics(tf.zeros(tf.shape(labels)[:1]), log_probabilities, ranks)

    def _score(self, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if id(labels) not in self._scored:
            scores, ranks = self.class_matrix.class_log_probabilities(  # type: ignore[attr-defined]
                self.flat_features, labels
            )
            self._scored[id(labels)] = tf.where(labels >= 0, scores, 0), ranks
        return self._scored[id(labels)]
