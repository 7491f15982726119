"""`BlackOutLoss`: a discriminative loss over the labels and a weighted sample."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import softmax_cross_entropy
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.sampled_values import DRAWS, PROBABILITIES
from tf_largeout.steps.candidates import Candidates


def black_out_loss(
    true_logits: tf.Tensor, sampled_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns `-mean_y log p_y - sum_d log(1 - p_d)`.

    p is the softmax over the labels and the sampled classes.

    Ji et al. 2016, equation 6 (Barber & Botev 2016, equation 47).

    Args:
        true_logits: Float `[B, L]`, corrected.
        sampled_logits: Float `[B, n]`, corrected; the lowest float for classes that are not
            negatives.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    lowest = sampled_logits.dtype.min
    logits = tf.concat([tf.where(has_label, true_logits, lowest), sampled_logits], axis=1)
    log_partition = tf.reduce_logsumexp(logits, axis=1)
    # 1 - p is inaccurate if p is near 1. Only the largest p can be: sum the other ones instead.
    top = tf.argmax(tf.pad(logits, [[0, 0], [0, 1]], constant_values=lowest), axis=1)
    is_top = tf.one_hot(top, tf.shape(logits)[1], on_value=True, off_value=False, dtype=tf.bool)
    others = tf.reduce_logsumexp(tf.where(is_top, lowest, logits), axis=1)
    is_negative = tf.concat([tf.zeros_like(has_label), sampled_logits > lowest], axis=1)
    has_digits = is_negative & ~is_top
    p = tf.exp(tf.where(has_digits, logits - log_partition[:, tf.newaxis], lowest))
    log_other = tf.where(is_top, (others - log_partition)[:, tf.newaxis], tf.math.log1p(-p))
    negative_loss = -tf.reduce_sum(tf.where(is_negative, log_other, 0), axis=1)
    return softmax_cross_entropy(log_partition, true_logits, has_label) + negative_loss


@keras.saving.register_keras_serializable(package="tf_largeout")
class BlackOutLoss(SampledLoss):
    """BlackOut (Ji et al. 2016, eq. 6): separates the label from the drawn classes.

    `-log p_y - sum_d log(1 - p_d)`, where p is the softmax of `o - log E[count]` over the label
    and the drawn classes. For several labels, the first term is the mean over the labels, and
    the softmax contains all labels. Classes that a search finds for an example have an expected
    count of 1.

    The paper draws by `Q = frequency^a`, with replacement: `UnigramSampler(counts=...,
    distortion=a, unique=False)`. The expected counts are then proportional to Q, and a common
    factor of the counts does not change the softmax. In `evaluate`, the loss reports the exact
    softmax loss.

    Args:
        remove_accidental_hits: Whether to ignore drawn classes that are labels of the example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.

    Raises:
        ValueError: In training, if the sampler searches and has no tail, because its expected
            counts are then unknown.
    """

    counts_taken = (DRAWS, PROBABILITIES)
    what_to_take = (
        "Use a static sampler, such as UnigramSampler. Or search for some negatives and draw "
        "the others with a static sampler, the tail: "
        "InvertedFileSampler(num_sampled, num_hard=16)."
    )

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = candidates.true_logits - candidates.true_log_counts()
        return black_out_loss(true_logits, candidates.corrected_logits(), candidates.has_label)
