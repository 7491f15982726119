"""`HierarchicalSoftmaxLoss`: the exact loss of hierarchical outputs, and their steps."""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassStatistics
from tf_largeout.losses.base import CrossEntropy, TaggedLoss, softmax_cross_entropy
from tf_largeout.papers.hierarchical.clustered_matrix import LogProbabilityScorer
from tf_largeout.steps.output_tag import OutputTag
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, DTypeLike, TensorLike


@dataclasses.dataclass(frozen=True, eq=False)
class LogProbabilityStep(Step):
    """A step of a `HierarchicalOutput` or a `HuffmanOutput`."""

    given_by: ClassVar[str] = "`HierarchicalOutput`"
    losses_to_take: ClassVar[str] = "`HierarchicalSoftmaxLoss` or `SoftmaxLoss`"

    classes: LogProbabilityScorer

    def label_log_probabilities(self) -> tf.Tensor:
        """Returns the exact log-probabilities of the labels, float32 `[B, L]`; 0 at padding.

        All losses and metrics share the result for the same labels.
        """
        return self._score()[0]

    def known_statistics(self, ranking: str = "logit") -> ClassStatistics | None:
        """Like `Step.known_statistics`; in training also what a loss has computed.

        In training, the ranks are those among the classes of the label's cluster. They are
        never above the exact ranks. In a binary tree, they are not known.
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


@keras.saving.register_keras_serializable(package="tf_largeout")
class HierarchicalSoftmaxLoss(TaggedLoss[LogProbabilityStep]):
    """Exact cross entropy of a `HierarchicalOutput` (Goodman 2001) or a `HuffmanOutput`.

    `-mean_y log P(y | h)` over the labels `y` of an example, with `P(c | h) = P(cluster of c |
    h) P(c | its cluster, h)`. The loss scores all clusters, and the classes in the clusters of
    the labels. So it takes O(num_clusters + size of a cluster) time per label, in training and
    in `evaluate`. The gradient of the class embeddings is sparse, with one row per class of
    these clusters. With a `HuffmanOutput`, the loss scores the nodes of the labels' paths.

    In training, `Perplexity` is exact. Rank metrics are too high in training, because they rank
    a label only among the classes of its cluster. With a `HuffmanOutput`, they are NaN.

    Args:
        class_weights: One weight per class, `[num_classes]`, that multiplies the term of each
            label of this class; None for 1. See `CrossEntropy`.

    The other arguments are those of `TaggedLoss`.

    Raises:
        ValueError: If the class weights are not valid.

    The loss has no label smoothing, because that would need the log-probabilities of all
    classes in each step.
    """

    step_class = LogProbabilityStep
    changes_some_rows = True

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.cross_entropy = CrossEntropy(class_weights=class_weights)

    def of_step(self, step: LogProbabilityStep) -> tf.Tensor:
        labels = step.labels.ids
        log_partition = tf.zeros(tf.shape(labels)[:1])  # the probabilities sum to 1
        log_probabilities = step.label_log_probabilities()
        weights = self.cross_entropy.weights_of(labels, step.num_classes)
        if weights is not None:
            log_probabilities *= weights
        return softmax_cross_entropy(log_partition, log_probabilities, labels >= 0)

    def get_config(self) -> Config:
        class_weights = self.cross_entropy.get_config()["class_weights"]
        return {**super().get_config(), "class_weights": class_weights}
