"""`HierarchicalSoftmaxLoss`: the exact loss of a two-level softmax."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import softmax_cross_entropy
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.tags.log_probabilities import LogProbabilities


@keras.saving.register_keras_serializable(package="tf_largeout")
class HierarchicalSoftmaxLoss(TaggedLoss):
    """Exact cross entropy of a `HierarchicalOutput` (Goodman 2001).

    `-mean_y log P(y | h)` over the labels `y` of an example, with `P(c | h) = P(cluster of c |
    h) P(c | its cluster, h)`. The loss scores all clusters, and the classes in the clusters of
    the labels. So it takes O(num_clusters + size of a cluster) time per label, in training and
    in `evaluate`. The gradient of the class embeddings is sparse, with one row per class of
    these clusters.

    In training, `Perplexity` is exact. Rank metrics are too high in training, because they rank
    a label only among the classes of its cluster.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
    """

    tag_class = LogProbabilities

    def example_losses(self, tag: LogProbabilities, labels: tf.Tensor) -> tf.Tensor:
        log_partition = tf.zeros(tf.shape(labels)[:1])  # the probabilities sum to 1
        return softmax_cross_entropy(
            log_partition, tag.label_log_probabilities(labels), labels >= 0
        )
