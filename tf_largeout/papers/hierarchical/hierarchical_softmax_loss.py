"""`HierarchicalSoftmaxLoss`: the exact loss of a hierarchical softmax."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import CrossEntropy, softmax_cross_entropy
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.papers.hierarchical.log_probabilities import LogProbabilityStep
from tf_largeout.types import Config, DTypeLike, TensorLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class HierarchicalSoftmaxLoss(TaggedLoss):
    """Exact cross entropy of a `HierarchicalOutput` (Goodman 2001) or a `HuffmanOutput`.

    `-mean_y log P(y | h)` over the labels `y` of an example, with `P(c | h) = P(cluster of c |
    h) P(c | its cluster, h)`. The loss scores all clusters, and the classes in the clusters of
    the labels. So it takes O(num_clusters + size of a cluster) time per label, in training and
    in `evaluate`. The gradient of the class embeddings is sparse, with one row per class of
    these clusters. With a `HuffmanOutput`, the loss scores the nodes of the labels' paths.

    In training, `Perplexity` is exact. Rank metrics are too high in training, because they rank
    a label only among the classes of its cluster. With a `HuffmanOutput`, they are NaN.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.
        class_weights: One weight per class, `[num_classes]`, that multiplies the term of each
            label of this class; None for 1. See `CrossEntropy`.

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
