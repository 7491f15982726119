"""Losses with a logistic term per class: NCE, negative sampling and one-vs-all."""

from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Unpack

from tf_largeout.arguments import one_of, real_number
from tf_largeout.losses.base import (
    ProductOptions,
    SampledLoss,
    SampledOptions,
    losses_of,
    target_weights,
)
from tf_largeout.steps.labels import first_occurrences
from tf_largeout.steps.step import Candidates, SampledStep, row_sums
from tf_largeout.types import Config


def nce_loss(
    true_logits: tf.Tensor, sampled_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the logistic loss that separates labels from sampled classes, `[B]`.

    It is `sum_y (softplus(o_y) - t o_y) + sum_s softplus(o_s)` with `t = 1 / #labels`. For one
    label, this is `-log sigmoid(o_y) - sum_s log sigmoid(-o_s)`, minus the objective of Gutmann
    & Hyvarinen 2010. For several labels it equals `tf.nn.nce_loss`. The corrected logits are
    floats, `[B, L]` and `[B, num_sampled]`; `has_label`, bool `[B, L]`, is False at padding.
    """
    true_logits = tf.where(has_label, true_logits, 0)
    weights = target_weights(has_label, true_logits.dtype)
    true_terms = tf.math.softplus(true_logits) - weights * true_logits
    true_loss = row_sums(tf.where(has_label, true_terms, 0))
    return true_loss + row_sums(tf.math.softplus(sampled_logits))


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

    The arguments are those of `SampledLoss`.
    """

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = candidates.true_logits - candidates.true_log_counts()
        return nce_loss(true_logits, candidates.corrected_logits(), candidates.has_label)


def nce(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `NCELoss`."""
    return losses_of(NCELoss, step, options)


def negative_sampling_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    has_label: tf.Tensor,
    negative_reduction: str = "sum",
    positive_weight: float | tf.Tensor = 1.0,
) -> tf.Tensor:
    """Returns `-mean_y log sigmoid(o_y) - reduce_s log sigmoid(-o_s)`, `[B]`.

    With "sum" and one label, this is equation 4 of Mikolov et al. 2013, "Distributed
    representations of words and phrases". The mean is equation 45 of Barber & Botev 2016.

    Args:
        true_logits: Float `[B, L]`.
        sampled_logits: Float `[B, num_sampled]`; the lowest float at accidental hits.
        has_label: Bool `[B, L]`, False at padding.
        negative_reduction: "sum", or "mean" over the negatives that are not accidental hits.
        positive_weight: Factor of the term of the labels.
    """
    # -log sigmoid(x) = softplus(-x), which is stable for any x.
    weights = target_weights(has_label, true_logits.dtype)
    true_loss = row_sums(weights * tf.math.softplus(-true_logits))
    negative_loss = row_sums(tf.math.softplus(sampled_logits))
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
        calibration: The t of gBCE, in [0, 1]. The default 0 is the logistic loss. With 1, the
            probabilities are calibrated for uniform negatives; the paper uses 0.75.

    The other arguments are those of `SampledLoss`.

    Raises:
        ValueError: If `negative_reduction` is neither "sum" nor "mean", or `calibration` is
            not in [0, 1].
    """

    def __init__(
        self,
        negative_reduction: str = "sum",
        calibration: float = 0.0,
        **options: Unpack[SampledOptions],
    ) -> None:
        super().__init__(**options)
        self.negative_reduction = one_of(
            "negative_reduction", negative_reduction, ["sum", "mean"]
        )
        self.calibration = real_number("calibration", calibration, least=0, most=1)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        positive_weight = 1.0
        if self.calibration:
            num_sampled = tf.add_n([tf.shape(one.products)[1] for one in candidates.samples])
            num_negatives = max(candidates.num_classes - 1, 1)
            share = tf.minimum(tf.cast(num_sampled, tf.float32) / num_negatives, 1)
            positive_weight = 1 - self.calibration * (1 - share)
        return negative_sampling_loss(
            candidates.true_logits,
            candidates.logits(),
            candidates.has_label,
            self.negative_reduction,
            positive_weight,
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "negative_reduction": self.negative_reduction,
            "calibration": self.calibration,
        }


def negative_sampling(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `NegativeSamplingLoss`."""
    return losses_of(NegativeSamplingLoss, step, options)


@keras.saving.register_keras_serializable(package="tf_largeout")
class SigmoidLoss(SampledLoss):
    """The sum over all classes of the binary cross entropy (one-vs-all).

    `sum_y softplus(-o_y) + sum_c softplus(o_c)` for the labels y of an example, each counted
    once, and all other classes c (Vijayanarasimhan et al. 2015, eq. 2). The model predicts each
    class independently, with the probability `sigmoid(o_c)`. So it suits examples with any
    number of labels.

    In training, the second sum is estimated from the sampler's classes s, by
    `softplus(o_s) / E[count_s]`, without bias. If the layer has no sampler, the loss is exact
    also in training: it works in blocks of classes, and its time and the gradient of the class
    embeddings are O(num_classes). `evaluate` reports the exact loss.

    The paper's training counts only the labels and the classes that WTA hashes find. That is
    `NegativeSamplingLoss` with an `LSHSampler` without a tail. For this loss, use the same
    sampler with `num_hard` and a tail.

    With all biases 0, the first losses are about `num_classes log 2`. Initialize the biases to
    `-log(num_classes)` (`bias_initializer=keras.initializers.Constant(...)`), so that training
    does not start by lowering all of them.

    The arguments are those of `SampledLoss`, without `remove_accidental_hits`: a label is never
    a negative. An exact pass is in float32.

    Raises:
        ValueError: In training, if the sampler is a search without a tail, whose expected
            counts are unknown; and in the cases that `SampledLoss` names.
    """

    def __init__(self, **options: Unpack[ProductOptions]) -> None:
        super().__init__(True, **options)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        is_label = first_occurrences(candidates.labels)
        of_labels = tf.where(is_label, tf.math.softplus(-candidates.true_logits), 0)
        others = candidates.sum_over_others(tf.math.softplus)
        return row_sums(of_labels) + others

    def of_step(self, step: SampledStep) -> tf.Tensor:
        exact = step.training and step.sampler_name is None
        return self.exact_losses(step) if exact else super().of_step(step)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        # softplus(-o) = softplus(o) - o for the labels
        scorer, features, labels = step.classes, step.features, step.labels.ids
        total = scorer.sum_over_classes(features, tf.math.softplus, bool(step.training))
        own = scorer.dots(features, labels)
        of_labels = row_sums(tf.where(step.distinct_labels, own, 0))
        return tf.where(tf.reduce_any(labels >= 0, axis=1), total - of_labels, 0)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["remove_accidental_hits"]  # a label is never a negative
        return config


def sigmoid(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `SigmoidLoss`."""
    return losses_of(SigmoidLoss, step, options)
