"""`NegativeSamplingLoss`: the logistic loss of word2vec."""

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, real_number
from tf_largeout.losses.cross_entropy import target_weights
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.types import Config, DTypeLike


def negative_sampling_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    has_label: tf.Tensor,
    negative_reduction: str = "sum",
    positive_weight: float | tf.Tensor = 1.0,
) -> tf.Tensor:
    """Returns `-mean_y log sigmoid(o_y) - reduce_s log sigmoid(-o_s)`.

    With "sum" and one label, this is equation 4 of Mikolov et al. 2013, "Distributed
    representations of words and phrases". The mean is equation 45 of Barber & Botev 2016.

    Args:
        true_logits: Float `[B, L]`.
        sampled_logits: Float `[B, num_sampled]`; the lowest float at accidental hits.
        has_label: Bool `[B, L]`, False at padding.
        negative_reduction: "sum", or "mean" over the negatives that are not accidental hits.
        positive_weight: Factor of the term of the labels.

    Returns:
        `[B]`.
    """
    # -log sigmoid(x) = softplus(-x), which is stable for any x.
    weights = target_weights(has_label, true_logits.dtype)
    true_loss = tf.reduce_sum(weights * tf.math.softplus(-true_logits), axis=-1)
    negative_loss = tf.reduce_sum(tf.math.softplus(sampled_logits), axis=-1)
    if negative_reduction == "mean":
        is_negative = tf.cast(sampled_logits > sampled_logits.dtype.min, sampled_logits.dtype)
        negative_loss = tf.math.divide_no_nan(
            negative_loss, tf.reduce_sum(is_negative, axis=-1)
        )
    return positive_weight * true_loss + negative_loss


@keras.saving.register_keras_serializable(package="tf_largeout")
class NegativeSamplingLoss(SampledLoss):
    """Negative sampling (Mikolov et al. 2013, eq. 4): a logistic loss without a correction.

    `-log sigmoid(o_y) - sum_s log sigmoid(-o_s)` for logits o, label y and drawn classes s. The
    learned logits are not log-probabilities: they are shifted by the log of the sampler's
    distribution. For several labels, the first term is the mean over the labels.

    `calibration` gives the gBCE loss (Petrov & Macdonald 2023, "gSASRec: reducing
    overconfidence in sequential recommendation trained with negative sampling", section 5). It
    multiplies the first term by `1 - calibration * (1 - m / (num_classes - 1))` for m drawn
    classes. With few negatives, the logistic loss makes the probabilities of labels too high.
    This factor reduces the error.

    With "sum", m negatives outweigh the label, so training first lowers all logits. Start the
    biases at `-log(m)` instead: `bias_initializer=keras.initializers.Constant(...)`.

    Args:
        negative_reduction: "sum" over the drawn classes, or the "mean" over them (Barber &
            Botev 2016, eq. 45). With "mean", the label has the same weight as all negatives
            together.
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.
        calibration: The t of gBCE, in [0, 1]. The default 0 is the logistic loss. With 1, the
            probabilities are calibrated for uniform negatives; the paper uses 0.75.

    Raises:
        ValueError: If `negative_reduction` is neither "sum" nor "mean", or `calibration` is
            not in [0, 1].
    """

    def __init__(
        self,
        negative_reduction: str = "sum",
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "negative_sampling_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        calibration: float = 0.0,
    ) -> None:
        super().__init__(
            remove_accidental_hits, reduction, name, dtype, compute_dtype, ignore_class
        )
        self.negative_reduction = one_of(
            "negative_reduction", negative_reduction, ["sum", "mean"]
        )
        self.calibration = real_number("calibration", calibration, least=0, most=1)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        return negative_sampling_loss(
            candidates.true_logits,
            candidates.logits(),
            candidates.has_label,
            self.negative_reduction,
            self._positive_weight(candidates),
        )

    def _positive_weight(self, candidates: Candidates) -> float | tf.Tensor:
        if not self.calibration:
            return 1.0
        num_sampled = tf.add_n([tf.shape(one.products)[1] for one in candidates.samples])
        num_negatives = max(candidates.num_classes - 1, 1)
        share = tf.minimum(tf.cast(num_sampled, tf.float32) / num_negatives, 1)
        return 1 - self.calibration * (1 - share)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "negative_reduction": self.negative_reduction,
            "calibration": self.calibration,
        }
