"""`DecoupledSoftmaxLoss`: each label competes with the sample, not with other labels."""

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.losses.cross_entropy import CrossEntropy
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.step import SampledStep
from tf_largeout.types import Config, DTypeLike, TensorLike


def decoupled_softmax_loss(
    true_logits: tf.Tensor,
    sampled_log_partition: tf.Tensor,
    has_label: tf.Tensor,
    label_power: float = 0.5,
    label_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    """Sums over labels the cross entropy of a softmax over that label and the sample.

    Args:
        true_logits: Float `[B, L]`.
        sampled_log_partition: Float `[B]`, logsumexp of the corrected logits of the sampled
            classes that are not labels of the example.
        has_label: Bool `[B, L]`, False at padding.
        label_power: Each term has the weight `#labels^-label_power`.
        label_weights: Float `[B, L]`, the factors of the terms; None for 1.

    Returns:
        `[B]`; 0 for an example without labels.
    """
    true_logits = tf.where(has_label, true_logits, 0)
    # -log(e^o / (e^o + Z)) = softplus(log Z - o)
    terms = tf.math.softplus(sampled_log_partition[:, tf.newaxis] - true_logits)
    present = tf.cast(has_label, terms.dtype)
    num_labels = tf.maximum(tf.reduce_sum(present, axis=-1), 1)
    if label_weights is not None:
        terms *= label_weights
    return tf.reduce_sum(present * terms, axis=-1) * num_labels**-label_power


@keras.saving.register_keras_serializable(package="tf_largeout")
class DecoupledSoftmaxLoss(SampledLoss):
    """One softmax per label, over that label and the drawn classes.

    `L^-label_power sum_y -log(exp(o_y) / (exp(o_y) + sum_s exp(o'_s)))` for an example with L
    labels. The outer sum is over its labels y, and the inner sum over the drawn classes s that
    are not its labels. `o` are logits, and `o'_s = o_s - log E[count_s]`.

    Use this loss for examples with several labels. In `SampledSoftmaxLoss`, the denominator
    contains all labels of an example, so each label lowers the probabilities of the others.
    With one label per example, both losses are equal.

    References:
        Gupta et al. 2024, "Dual-encoders for extreme multi-label classification"
        (arXiv 2310.10636), section 4: the decoupled softmax.
        Menon et al. 2019, "Multilabel reductions: what is my loss optimising?": the weight
        of an example.

    Args:
        label_power: Each label has the weight `L^-label_power`. With 1, all examples have the
            same weight, as in `SampledSoftmaxLoss`. This favours recall. With 0, all labels
            have the same weight. This favours precision. The default, 0.5, is a compromise: an
            example with many labels has more weight, but less than in proportion to its labels.
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.
        class_weights: One weight per class, `[num_classes]`, that multiplies the term of each
            label of this class; None for 1. See `CrossEntropy`.

    Raises:
        ValueError: If `label_power` is not a number in [0, 1], or the class weights are not
            valid.
    """

    def __init__(
        self,
        label_power: float = 0.5,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "decoupled_softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(
            remove_accidental_hits, reduction, name, dtype, compute_dtype, ignore_class
        )
        self.label_power = real_number("label_power", label_power, least=0, most=1)
        self.cross_entropy = CrossEntropy(class_weights=class_weights)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        return decoupled_softmax_loss(
            candidates.true_logits,
            candidates.log_partition(),
            candidates.has_label,
            self.label_power,
            self.cross_entropy.weights_of(candidates.labels, candidates.num_classes),
        )

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        return self.cross_entropy.exact(step)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "class_weights": self.cross_entropy.get_config()["class_weights"],
            "label_power": self.label_power,
        }
