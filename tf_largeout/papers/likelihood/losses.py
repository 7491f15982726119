"""Losses of approximate likelihoods and of ranking."""

import math

import keras
import tensorflow as tf
from typing_extensions import Unpack

from tf_largeout.arguments import one_of, real_number
from tf_largeout.losses.base import (
    ProductOptions,
    SampledLoss,
    SampledOptions,
    softmax_cross_entropy,
    target_weights,
)
from tf_largeout.losses.softmax_losses import sampled_softmax_loss
from tf_largeout.sampled_values import DRAWS, PROBABILITIES
from tf_largeout.steps.step import Candidates, SampledStep
from tf_largeout.types import Config

FORMS = ("logistic", "hinge")


class NormalizationLoss(SampledLoss):
    """Base of the maximum likelihood losses with a sampled sum (Barber & Botev 2016).

    The partition function is the sum of `exp(o_c)` over all classes c with logits `o_c`. The
    loss computes this sum exactly over a set C of classes that contains the labels. It
    estimates the rest of the sum from the sample S. Each sampled class is weighted by the
    reciprocal of its expected count:

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / E[count_d]

    A drawn class of C has no effect, so the expected value of the estimate is the partition
    function. The set C of an example also contains the classes that a search found for it.
    Because the sum contains the label, the weights of all classes are in [0, 1], and the
    derivatives with respect to logits are in [-1, 1] (equation 26).

    A subclass defines which expected counts it accepts.

    Args:
        complement: "label" if C contains the labels of the example. "batch" if C contains the
            labels of the whole batch, so that the labels of the other examples are negatives
            too.

    The other arguments are those of `SampledLoss`.

    Raises:
        ValueError: If `complement` is neither "label" nor "batch"; in training, if the loss
            does not accept the sampler's expected counts.
    """

    def __init__(
        self,
        complement: str = "label",
        **options: Unpack[ProductOptions],
    ) -> None:
        super().__init__(True, **options)
        self.complement = one_of("complement", complement, ["label", "batch"])

    def candidates(self, step: SampledStep, explicit: tf.Tensor | None = None) -> Candidates:
        if self.complement == "batch":
            ids = tf.unique(tf.reshape(step.labels.ids, [-1])).y
            explicit = tf.boolean_mask(ids, ids >= 0)
        return super().candidates(step, explicit)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        # A sampled softmax whose labels keep their logits: equations 22 and 23.
        return sampled_softmax_loss(
            candidates.true_logits, candidates.log_partition(), candidates.has_label
        )

    def get_config(self) -> Config:
        config = {**super().get_config(), "complement": self.complement}
        del config["remove_accidental_hits"]  # hits never have an effect here
        return config


@keras.saving.register_keras_serializable(package="tf_largeout")
class ImportanceNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with an importance sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / (K q'_d)

    of Barber & Botev 2016, section 2.1. Here `o_c` is the logit of class c, y is the label, C
    is a set of classes that contains y, and S is the sample of m draws. The sum over C is
    exact, and draws in C have no effect. `q'_d = q_d / (1 - q(C))` is the distribution of the
    sampler outside of C, and `K = m (1 - q(C))` is the expected number of draws there. So
    `kappa_d = 1 / (m q_d)`, and the expected value of the whole sum is the partition function.
    For draws without replacement, `kappa_d` is `1 / E[count_d]`. The derivatives with respect
    to logits are in [-1, 1].

    With `complement="label"`, this loss equals `SampledSoftmaxLoss`. With "batch", the labels
    of the other examples are scored too, and the sum is closer to the partition function.

    In `evaluate`, the loss reports the exact softmax loss.

    The arguments are those of `NormalizationLoss`.

    Raises:
        ValueError: If `complement` is neither "label" nor "batch". Also in training, if the
            sampler takes all its classes from a search (`num_hard=None`), because the
            partition function cannot be estimated from these classes.
    """

    counts_taken = (DRAWS, PROBABILITIES)
    what_to_take = (
        "Use SoftmaxSampler or a static sampler, such as UniformSampler. Or search for some "
        "negatives and draw the others with a static sampler, the tail: "
        "InvertedFileSampler(num_sampled, num_hard=16)."
    )


@keras.saving.register_keras_serializable(package="tf_largeout")
class BernoulliNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with a Bernoulli sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} exp(o_d) / b_d)

    of Barber & Botev 2016, section 2.1. Here `o_c` is the logit of class c, y is the label, C
    is a set of classes that contains y, and S is the sample. The sum over C is exact. A class d
    outside of C is in S at most once, with probability `b_d`. So the expected value of the
    whole sum is the partition function. If all `b_d` are 1, the sum is the partition function.
    The derivatives with respect to logits are in [-1, 1].

    In `evaluate`, the loss reports the exact softmax loss.

    The arguments are those of `NormalizationLoss`.

    Raises:
        ValueError: If `complement` is neither "label" nor "batch"; in training, if the expected
            counts of the sampler are not probabilities of being drawn.
    """

    counts_taken = (PROBABILITIES,)
    what_to_take = (
        "Use BernoulliSampler or another static sampler with unique=True. Or search for some "
        "negatives and draw the others with such a sampler, the tail: "
        "InvertedFileSampler(num_sampled, num_hard=16)."
    )


def ranking_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    has_label: tf.Tensor,
    margin: float,
    form: str = "logistic",
) -> tf.Tensor:
    """Returns `-mean_y mean_d log sigmoid(o_y - o_d - margin)` (Barber & Botev 2016, eq. 33).

    The form "hinge" is `mean_y mean_d max(0, margin - (o_y - o_d))` (equation 32). The logits
    are raw; those of classes without effect are the lowest float. The loss uses memory for n
    numbers per label. Without negatives, it is 0.
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
        form: "logistic", the default, or "hinge".

    The other arguments are those of `SampledLoss`.

    Raises:
        ValueError: If `margin` is neither a finite number nor None, or `form` is neither
            "logistic" nor "hinge".
    """

    def __init__(
        self,
        margin: float | None = None,
        form: str = "logistic",
        **options: Unpack[SampledOptions],
    ) -> None:
        super().__init__(**options)
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


def black_out_loss(
    true_logits: tf.Tensor, sampled_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns `-mean_y log p_y - sum_d log(1 - p_d)` (Ji et al. 2016, equation 6).

    p is the softmax over the labels and the sampled classes. The logits are corrected; those of
    classes that are not negatives are the lowest float. See also Barber & Botev 2016, equation
    47.
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

    The arguments are those of `SampledLoss`.

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
