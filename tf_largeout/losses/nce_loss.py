"""`NCELoss`: noise-contrastive estimation."""

import keras
import tensorflow as tf

from tf_largeout.losses.cross_entropy import target_weights
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.tags.candidates import Candidates
from tf_largeout.types import DTypeLike


def nce_loss(
    true_logits: tf.Tensor, sampled_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Logistic loss that tells labels from sampled classes.

    With `t = 1 / #labels`: `sum_y (softplus(o_y) - t o_y) + sum_s softplus(o_s)`. For one
    label that is `-log sigmoid(o_y) - sum_s log sigmoid(-o_s)`, the objective of Gutmann &
    Hyvarinen 2010 with its sign turned; for several it is what `tf.nn.nce_loss` computes.

    Args:
        true_logits: Float `[B, L]`, corrected.
        sampled_logits: Float `[B, num_sampled]`, corrected.
        has_label: Bool `[B, L]`, False in padded places.

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

    Of several labels each has the target `1 / #labels`, so its corrected logit is drawn to
    `log(1 / (#labels - 1))`, not ever higher: the mass of a row is 1, as in `tf.nn`.

    Logits are taken for log probabilities as they stand: biases that start at
    `-log(num_classes)` spare the time in which all of them must come down. Hard negatives of a
    row's own count as drawn for certain, and go well with this loss.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the row has no
            effect on that row. (`tf.nn.nce_loss` leaves hits in by default.)
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: Of the products of shared classes, see `SampledLoss`.
    """

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "nce_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(remove_accidental_hits, reduction, name, dtype, compute_dtype)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = candidates.true_logits - candidates.true_log_counts()
        return nce_loss(true_logits, candidates.corrected_logits(), candidates.has_label)
