"""`SampledSoftmaxLoss`: cross entropy over the labels and a sample."""

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.losses.cross_entropy import CrossEntropy, softmax_cross_entropy
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.step import SampledStep
from tf_largeout.types import Config, DTypeLike, TensorLike

_NEED_THE_PARTITION = "need correct_positive=False, to estimate the sum over all classes."


def sampled_softmax_loss(
    true_logits: tf.Tensor, sampled_log_partition: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the softmax cross entropy over the labels and the sampled classes.

    This is the sampled softmax of Jean et al. 2015, section 3. Each label has the target
    probability `1 / #labels`, as in `tf.nn.sampled_softmax_loss`.

    Args:
        true_logits: Float `[B, L]`, corrected or not.
        sampled_log_partition: Float `[B]`, logsumexp of the corrected logits of the sampled
            classes that are not labels of the example.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    log_partition = with_labels(true_logits, sampled_log_partition, has_label)
    return softmax_cross_entropy(log_partition, true_logits, has_label)


def with_labels(
    true_logits: tf.Tensor, sampled_log_partition: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns `[B]`, the logsumexp over the labels and the sampled classes.

    The arguments are those of `sampled_softmax_loss`.
    """
    true_or_lowest = tf.where(has_label, true_logits, true_logits.dtype.min)
    parts = tf.concat([true_or_lowest, sampled_log_partition[:, tf.newaxis]], axis=-1)
    return tf.reduce_logsumexp(parts, axis=-1)


@keras.saving.register_keras_serializable(package="tf_largeout")
class SampledSoftmaxLoss(SampledLoss):
    """Sampled softmax: cross entropy over the labels and the drawn classes.

    `-o'_y + log(exp(o'_y) + sum_s exp(o'_s))`, with `o'_s = o_s - log E[count_s]` for drawn
    classes `s`. `o` are logits and y is the label. By default, the logit of the label is not
    corrected: `o'_y = o_y` (Blanc & Rendle 2018, eq. 2). The sum is then an unbiased estimate
    of the partition function. If an example has several labels, each has the target probability
    `1 / #labels`: the first term is the mean over the labels, and the sum in the
    logarithm contains every label.

    The estimate is unbiased if the labels of each example are distinct. In training, the sum
    contains a repeated label as often as the example has it, as in
    `tf.nn.sampled_softmax_loss`. `evaluate` reports the exact loss, whose sum contains each
    class once. In both, the first term counts a repeated label as often as it occurs.

    Args:
        correct_positive: Whether to correct the label's logit by its expected count too, as
            `tf.nn.sampled_softmax_loss` does.
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.
        label_smoothing: The share e of the target that is spread uniformly over all classes, in
            [0, 1). See `CrossEntropy`.
        log_partition_penalty: Factor, at least 0, of the added term `(log Z)^2`, where Z is the
            sum of `exp(logit)` over all classes. See `CrossEntropy`.
        class_weights: One weight per class, `[num_classes]`. None, the default, is 1 for all.
            The weight of a label multiplies its whole term, including its smoothed part. The
            loss is `sum_y w_y t_y (log Z - (1 - e) o_y - e mean_c o_c)`, where y runs over the
            labels of an example, and `t_y = 1 / #labels`. Weights of classes that are not
            labels have no effect. (In PyTorch they do: `mean_c` is weighted there.) See
            `CrossEntropy`.

    Raises:
        ValueError: If an argument is out of range; if `correct_positive` is combined with
            `label_smoothing`, `log_partition_penalty` or soft targets; in training, if
            `label_smoothing` or soft targets are used with a sampler that searches without a
            tail; and in the cases that `SampledLoss` names.
    """

    takes_soft_targets = True

    def __init__(
        self,
        correct_positive: bool = False,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "sampled_softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(
            remove_accidental_hits, reduction, name, dtype, compute_dtype, ignore_class
        )
        self.correct_positive = boolean("correct_positive", correct_positive)
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)
        if correct_positive and (label_smoothing or log_partition_penalty):
            raise ValueError(f"Label smoothing and the penalty of log Z {_NEED_THE_PARTITION}")

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits = candidates.true_logits
        if self.correct_positive:
            if candidates.label_weights is not None:
                raise ValueError(f"Soft targets {_NEED_THE_PARTITION}")
            true_logits -= candidates.true_log_counts()
        log_partition = with_labels(
            true_logits, candidates.log_partition(), candidates.has_label
        )
        return self.cross_entropy.of_candidates(candidates, log_partition, true_logits)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        return self.cross_entropy.exact(step)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **self.cross_entropy.get_config(),
            "correct_positive": self.correct_positive,
        }
