"""`AbsoluteSoftmaxLoss`: cross entropy of the softmax of absolute logits."""

import keras
import tensorflow as tf
from typing_extensions import Unpack

from tf_largeout.losses.base import CrossEntropy, SampledLoss, SampledOptions
from tf_largeout.losses.softmax_losses import sampled_softmax_loss, with_labels
from tf_largeout.steps.step import Candidates, SampledStep, absolute_or_lowest
from tf_largeout.types import Config, TensorLike


def absolute_softmax_loss(
    true_logits: tf.Tensor,
    sampled_logits: tf.Tensor,
    log_counts: tf.Tensor,
    has_label: tf.Tensor,
) -> tf.Tensor:
    """Returns the sampled softmax loss of `|logit|` (Blanc & Rendle 2018, equations 2 and 11).

    The logits are raw. The sampled logits are the lowest float where a class has no effect.
    """
    log_partition = _log_partition(sampled_logits, log_counts)
    return sampled_softmax_loss(tf.abs(true_logits), log_partition, has_label)


def _log_partition(sampled_logits: tf.Tensor, log_counts: tf.Tensor) -> tf.Tensor:
    """Returns the log of the estimated sum of `exp(|logit|)` over the other classes, `[B]`."""
    lowest = sampled_logits.dtype.min
    # Subtracting from the lowest float would overflow.
    log_counts = tf.where(sampled_logits > lowest, log_counts, 0)
    corrected = absolute_or_lowest(sampled_logits) - log_counts
    corrected = tf.pad(corrected, [[0, 0], [0, 1]], constant_values=lowest)  # if there are none
    return tf.reduce_logsumexp(corrected, axis=-1)


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
        label_smoothing, log_partition_penalty, class_weights: As in `SoftmaxLoss`, for absolute
            logits.

    The other arguments are those of `SampledLoss`.

    Raises:
        ValueError: If an argument is out of range; in training, if `label_smoothing` or soft
            targets are used with a sampler that searches and has no tail.
    """

    ranking = "absolute"
    takes_soft_targets = True

    def __init__(
        self,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
        **options: Unpack[SampledOptions],
    ) -> None:
        super().__init__(**options)
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = tf.abs(candidates.true_logits)
        log_partition = with_labels(
            true_logits,
            _log_partition(candidates.logits(), candidates.log_counts()),
            candidates.has_label,
        )
        return self.cross_entropy.of_candidates(candidates, log_partition, true_logits, tf.abs)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        return self.cross_entropy.exact(step, ranking="absolute")

    def get_config(self) -> Config:
        return {**super().get_config(), **self.cross_entropy.get_config()}
