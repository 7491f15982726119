"""Steps of hierarchical outputs, whose logits are log-probabilities."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.steps.output_tag import OutputTag
from tf_largeout.steps.step import Step


class LogProbabilityScorer(ClassScorer):
    """Classes that are scored by log-probabilities, which are cheap to compute for a few."""

    scores_are_products = False

    def class_log_probabilities(
        self, features: tf.Tensor, classes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the exact log-probabilities of each example's own classes, with gradients.

        Args:
            features: Float `[B, dim]`.
            classes: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B, L]`, any value at padding; and int64 `[B, L]`, ranks of the classes in
            their clusters, or None.
        """
        raise self._missing("class_log_probabilities")


@dataclasses.dataclass(frozen=True, eq=False)
class LogProbabilityStep(Step):
    """A step of a `HierarchicalOutput` or a `HuffmanOutput`."""

    given_by: ClassVar[str] = "`HierarchicalOutput`"
    losses_to_take: ClassVar[str] = "`HierarchicalSoftmaxLoss` or `SoftmaxLoss`"

    classes: LogProbabilityScorer

    def label_log_probabilities(self) -> tf.Tensor:
        """Returns the exact log-probabilities of the labels, float32 `[B, L]`; 0 at padding.

        It takes O(num_clusters + size of the labels' clusters) time per example, or O(depth) in
        a binary tree. All losses and metrics share the result for the same labels.
        """
        return self._score()[0]

    def known_statistics(self, ranking: str = "logit") -> ClassStatistics | None:
        """Like `Step.known_statistics`; in training also what a loss has computed.

        In training, these are the exact log-probabilities of `label_log_probabilities`. Their
        ranks are those among the classes of the label's cluster. They are never above the exact
        ranks. In a binary tree, they are not known.

        Raises:
            ValueError: If `ranking` is not "logit".
        """
        known = super().known_statistics(ranking)
        if known is not None or ("scored", id(self.labels)) not in self.shared:
            return known
        log_probabilities, ranks = self._score()
        return ClassStatistics(
            tf.zeros(tf.shape(self.labels.ids)[:1]), log_probabilities, ranks
        )

    def _score(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        key, labels = ("scored", id(self.labels)), self.labels.ids
        if key not in self.shared:
            scores, ranks = self.classes.class_log_probabilities(self.features, labels)
            self.shared[key] = tf.where(labels >= 0, scores, 0), ranks
        return self.shared[key]


class LogProbabilityTag(OutputTag):
    """The tag of hierarchical outputs."""

    step_class = LogProbabilityStep
