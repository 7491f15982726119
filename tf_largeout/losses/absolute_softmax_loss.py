"""`AbsoluteSoftmaxLoss`: cross entropy of the softmax of absolute logits."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import softmax_cross_entropy
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.losses.sampled_softmax_loss import sampled_softmax_loss
from tf_largeout.tags.candidates import Candidates, absolute_or_lowest
from tf_largeout.tags.lazy_logits import LazyLogits


def absolute_softmax_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    log_counts: tf.Tensor,
    has_label: tf.Tensor,
) -> tf.Tensor:
    """Returns the sampled softmax loss of `|logit|` (Blanc & Rendle 2018, equations 2 and 11).

    Args:
        true_logits: Float `[B, L]`, raw.
        sampled_logits: Float `[B, n]`, raw; the lowest float where a class has no effect.
        log_counts: Float `[B, n]`, log of the expected counts of the sampled classes.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    lowest = sampled_logits.dtype.min
    # Subtracting from the lowest float would overflow.
    log_counts = tf.where(sampled_logits > lowest, log_counts, 0)
    corrected = absolute_or_lowest(sampled_logits) - log_counts
    corrected = tf.pad(corrected, [[0, 0], [0, 1]], constant_values=lowest)  # if there are none
    log_partition = tf.reduce_logsumexp(corrected, axis=-1)
    return sampled_softmax_loss(tf.abs(true_logits), log_partition, has_label)


@keras.saving.register_keras_serializable(package="tf_largeout")
class AbsoluteSoftmaxLoss(SampledLoss):
    """Sampled softmax of absolute logits, for samplers with a symmetric kernel.

    The model predicts class c with probability `exp(|o_c|) / sum_d exp(|o_d|)` (Blanc & Rendle
    2018, eq. 11), and the loss is `-|o_y| + log(exp(|o_y|) + sum_s exp(|o_s|) / E[count_s])`.
    Here `o_c` is the logit of class c, y is the label and s runs over the drawn classes. If an
    example has several labels, each has the target probability `1 / #labels`. A sampler that
    draws classes with a high `o_c^2` also draws classes with very negative logits. This loss
    treats both as likely classes.

    In `evaluate`, the loss reports its own exact value, which takes one pass over all classes.
    A layer that is trained with this loss has the `ranking` "absolute": `top_k`, metrics and
    exports rank by `|o_c|`.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
    """

    ranking = "absolute"

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        return absolute_softmax_loss(
            candidates.true_logits,
            candidates.logits(),
            candidates.log_counts(),
            candidates.has_label,
        )

    def exact_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        exact = tag.class_statistics(labels, ranking="absolute")
        return softmax_cross_entropy(exact.log_partition, exact.true_logits, labels >= 0)
