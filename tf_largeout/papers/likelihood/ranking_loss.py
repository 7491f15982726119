"""`RankingLoss`: ranks labels above drawn classes, by a margin."""

import math

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, real_number
from tf_largeout.losses.cross_entropy import target_weights
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.types import Config, DTypeLike

FORMS = ("logistic", "hinge")


def ranking_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    has_label: tf.Tensor,
    margin: float,
    form: str = "logistic",
) -> tf.Tensor:
    """Returns `-mean_y mean_d log sigmoid(o_y - o_d - margin)` (Barber & Botev 2016, eq. 33).

    The form "hinge" is `mean_y mean_d max(0, margin - (o_y - o_d))` (equation 32). The loss
    uses memory for n numbers per label. Without negatives, it is 0.

    Args:
        true_logits: Float `[B, L]`, raw.
        sampled_logits: Float `[B, n]`, raw; the lowest float for classes without effect.
        has_label: Bool `[B, L]`, False at padding.
        margin: How far a label should be above each negative.
        form: "logistic" or "hinge".

    Returns:
        `[B]`.
    """
    places = tf.where(has_label)
    rows = places[:, 0]
    logits = tf.gather(sampled_logits, rows)
    is_negative = logits > logits.dtype.min
    above = tf.gather_nd(true_logits, places)[:, tf.newaxis] - tf.where(is_negative, logits, 0)
    # -log sigmoid(x) = softplus(-x), which is stable for any x.
    penalty = tf.nn.relu if form == "hinge" else tf.math.softplus
    terms = tf.where(is_negative, penalty(margin - above), 0)
    number = tf.reduce_sum(tf.cast(is_negative, terms.dtype), axis=1)
    means = tf.math.divide_no_nan(tf.reduce_sum(terms, axis=1), number)
    weights = tf.gather_nd(target_weights(has_label, terms.dtype), places)
    return tf.math.unsorted_segment_sum(weights * means, rows, tf.shape(has_label)[0])


@keras.saving.register_keras_serializable(package="tf_largeout")
class RankingLoss(SampledLoss):
    """Ranks the label above each drawn class: `-mean_d log sigmoid(o_y - o_d - margin)`.

    Barber & Botev 2016, section 3.3. y is the label, and d runs over the drawn classes. With
    one uniform negative and the margin `log(num_classes - 1)`, the loss is an importance sample
    of the softmax loss (equation 41). With more negatives, it is the mean of such samples. The
    loss ignores expected counts, so it accepts any sampler. But with other samplers or margins,
    its optimum differs from that of the softmax loss. For several labels, the loss is the mean
    over the labels. It is meant for comparisons: a model learns more from the same classes with
    `SampledSoftmaxLoss`.

    With `form="hinge"`, the loss is `mean_d max(0, margin - (o_y - o_d))` (equation 32, the
    hinge loss of Collobert & Weston 2008). A negative below the label by more than the margin
    then has no gradient.

    In `evaluate`, the loss reports the exact softmax loss.

    Args:
        margin: Any finite number. None, the default, is `log(num_classes - 1)` for the form
            "logistic", as the paper proposes, and 1 for "hinge", as in its equation 32.
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.
        form: "logistic", the default, or "hinge".

    Raises:
        ValueError: If `margin` is neither a finite number nor None, or `form` is neither
            "logistic" nor "hinge".
    """

    def __init__(
        self,
        margin: float | None = None,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "ranking_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        form: str = "logistic",
    ) -> None:
        super().__init__(
            remove_accidental_hits, reduction, name, dtype, compute_dtype, ignore_class
        )
        self.margin = None if margin is None else real_number("margin", margin, -math.inf)
        self.form = one_of("form", form, FORMS)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        margin = self.margin
        if margin is None and self.form == "hinge":
            margin = 1.0
        elif margin is None:
            margin = math.log(max(candidates.num_classes - 1, 1))
        logits = candidates.true_logits, candidates.logits()
        return ranking_loss(*logits, candidates.has_label, margin, self.form)

    def get_config(self) -> Config:
        return {**super().get_config(), "margin": self.margin, "form": self.form}
