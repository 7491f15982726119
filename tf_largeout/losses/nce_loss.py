"""`NCELoss`: noise-contrastive estimation."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import target_weights
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates


def nce_loss(
    true_logits: tf.Tensor, sampled_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the logistic loss that separates labels from sampled classes.

    It is `sum_y (softplus(o_y) - t o_y) + sum_s softplus(o_s)` with `t = 1 / #labels`. For one
    label, this is `-log sigmoid(o_y) - sum_s log sigmoid(-o_s)`, minus the objective of Gutmann
    & Hyvarinen 2010. For several labels it equals `tf.nn.nce_loss`.

    Args:
        true_logits: Float `[B, L]`, corrected.
        sampled_logits: Float `[B, num_sampled]`, corrected.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    true_logits = tf.where(has_label, true_logits, 0)
    weights = target_weights(has_label, true_logits.dtype)
    true_terms = tf.math.softplus(true_logits) - weights * true_logits
    true_loss = tf.reduce_sum(tf.where(has_label, true_terms, 0), axis=-1)
    return true_loss + tf.reduce_sum(tf.math.softplus(sampled_logits), axis=-1)


@keras.saving.register_keras_serializable(package="tf_largeout")
class NCELoss(SampledLoss):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010), equal to `tf.nn.nce_loss`.

    `-log sigmoid(o_y - log E[count_y]) - sum_s log sigmoid(-(o_s - log E[count_s]))`.

    `o` are logits, y is the label, and s runs over the drawn classes. If an example has several
    labels, each has the target `1 / #labels`, as in `tf.nn`, so that the targets of an example
    sum to 1. The corrected logit of such a label converges to `log(1 / (#labels - 1))`; the
    logit of a single label grows without bound.

    The loss treats logits as log-probabilities. Initialize the biases to `-log(num_classes)`.
    Otherwise the first steps are spent on lowering all biases. Hard negatives work well with
    this loss. Each has an expected count of 1.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example. (`tf.nn.nce_loss` keeps hits by default.)
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.
    """

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = candidates.true_logits - candidates.true_log_counts()
        return nce_loss(true_logits, candidates.corrected_logits(), candidates.has_label)
