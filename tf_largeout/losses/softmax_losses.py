"""Softmax losses: exact, sampled, with a margin, and with one softmax per label."""

import math
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Unpack

from tf_largeout.arguments import boolean, one_of, real_number
from tf_largeout.losses.base import (
    COMPUTE_DTYPES,
    CrossEntropy,
    LossOptions,
    ProductOptions,
    SampledLoss,
    SampledOptions,
    TaggedLoss,
    losses_of,
    softmax_cross_entropy,
)
from tf_largeout.steps.labels import first_occurrences
from tf_largeout.steps.step import Candidates, SampledStep, Step, row_sums
from tf_largeout.types import Config, TensorLike

_NEED_THE_PARTITION = "need correct_positive=False, to estimate the sum over all classes."
# Smaller sines are mostly rounding errors of the cosine; the gradient divides by the sine.
_LEAST_SINE = 1e-3


@keras.saving.register_keras_serializable(package="tf_largeout")
class SoftmaxLoss(TaggedLoss[Step]):
    """Exact softmax cross entropy over all classes.

    `-mean_y(o_y) + log(sum_c exp(o_c))` for the labels `y` of an example. The loss works in
    blocks of classes: it never stores a `[batch, num_classes]` matrix, and the backward pass
    computes the probabilities again. Its time and the size of the gradient of the class
    embeddings are O(num_classes). Use it for comparisons, or for training if a pass over all
    classes per step is fast enough.

    Args:
        compute_dtype: "float32" or "bfloat16". With "bfloat16", features, class embeddings and,
            in the gradient, probabilities are rounded to bfloat16 before they are multiplied.
            Sums, biases, variables and gradients stay float32. The relative error of a product
            is at most about 2^-8. Processors with AMX multiply bfloat16 numbers several times
            as fast as float32 numbers. On other processors, the rounding is the same, but the
            products take longer than in float32. In training, metrics also use the rounded
            logits. `evaluate` always uses float32. GPUs do not support "bfloat16".
        label_smoothing: The share e of the target that is spread uniformly over all classes, in
            [0, 1).
        log_partition_penalty: Factor, at least 0, of the added term `(log Z)^2`: the z-loss of
            PaLM, which keeps log Z near 0.
        class_weights: One weight per class, `[num_classes]`. None, the default, is 1 for all.
            The weight of a label multiplies its whole term, including its smoothed part. The
            loss is `sum_y w_y t_y (log Z - (1 - e) o_y - e mean_c o_c)`, where y runs over the
            labels of an example, and `t_y = 1 / #labels`. Weights of classes that are not
            labels have no effect. (In PyTorch they do: `mean_c` is weighted there.)

    Soft targets of an example may have a sum below 1. The rest is spread uniformly over all
    classes, as for a teacher of which only the best k probabilities are known.

    The other arguments are those of `TaggedLoss`.

    Raises:
        ValueError: If `compute_dtype` is another string, or another argument is out of range.
    """

    takes_soft_targets = True

    def __init__(
        self,
        compute_dtype: str = "float32",
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)

    def of_step(self, step: Step) -> tf.Tensor:
        dtype = self.compute_dtype if step.training else "float32"
        return self.cross_entropy.exact(step, dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **self.cross_entropy.get_config(),
            "compute_dtype": self.compute_dtype,
        }


def softmax(step: Step, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `SoftmaxLoss`."""
    return losses_of(SoftmaxLoss, step, options)


def sampled_softmax_loss(
    true_logits: tf.Tensor, sampled_log_partition: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the softmax cross entropy over the labels and the sampled classes, `[B]`.

    This is the sampled softmax of Jean et al. 2015, section 3. Each label has the target
    probability `1 / #labels`, as in `tf.nn.sampled_softmax_loss`.

    Args:
        true_logits: Float `[B, L]`, corrected or not.
        sampled_log_partition: Float `[B]`, logsumexp of the corrected logits of the sampled
            classes that are not labels of the example.
        has_label: Bool `[B, L]`, False at padding.
    """
    log_partition = with_labels(true_logits, sampled_log_partition, has_label)
    return softmax_cross_entropy(log_partition, true_logits, has_label)


def with_labels(
    true_logits: tf.Tensor, sampled_log_partition: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns `[B]`, the logsumexp over the labels and the sampled classes."""
    true_or_lowest = tf.where(has_label, true_logits, true_logits.dtype.min)
    parts = tf.concat([true_or_lowest, sampled_log_partition[:, tf.newaxis]], axis=-1)
    # With `keepdims`, the gradient does not wait for a GPU, as in `row_sums`.
    return tf.squeeze(tf.reduce_logsumexp(parts, axis=-1, keepdims=True), axis=-1)


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
        label_smoothing, log_partition_penalty, class_weights: As in `SoftmaxLoss`.

    The other arguments are those of `SampledLoss`.

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
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
        **options: Unpack[SampledOptions],
    ) -> None:
        super().__init__(**options)
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

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **self.cross_entropy.get_config(),
            "correct_positive": self.correct_positive,
        }


def sampled_softmax(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `SampledSoftmaxLoss`."""
    return losses_of(SampledSoftmaxLoss, step, options)


def decoupled_softmax_loss(
    true_logits: tf.Tensor,
    sampled_log_partition: tf.Tensor,
    has_label: tf.Tensor,
    label_power: float = 0.5,
    label_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    """Sums over labels the cross entropy of a softmax over that label and the sample, `[B]`.

    Each term has the weight `#labels^-label_power`, times its `label_weights`, float `[B, L]`,
    or 1. The other arguments are those of `sampled_softmax_loss`.
    """
    true_logits = tf.where(has_label, true_logits, 0)
    # -log(e^o / (e^o + Z)) = softplus(log Z - o)
    terms = tf.math.softplus(sampled_log_partition[:, tf.newaxis] - true_logits)
    present = tf.cast(has_label, terms.dtype)
    num_labels = tf.maximum(tf.reduce_sum(present, axis=-1), 1)
    if label_weights is not None:
        terms *= label_weights
    return row_sums(present * terms) * num_labels**-label_power


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
        class_weights: As in `SoftmaxLoss`; they multiply the terms of the labels.

    The other arguments are those of `SampledLoss`.

    Raises:
        ValueError: If `label_power` is not a number in [0, 1], or the class weights are not
            valid.
    """

    def __init__(
        self,
        label_power: float = 0.5,
        class_weights: TensorLike | None = None,
        **options: Unpack[SampledOptions],
    ) -> None:
        super().__init__(**options)
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

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "class_weights": self.cross_entropy.get_config()["class_weights"],
            "label_power": self.label_power,
        }


def decoupled_softmax(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `DecoupledSoftmaxLoss`."""
    return losses_of(DecoupledSoftmaxLoss, step, options)


def cosine_with_margins(
    cosines: tf.Tensor, angular_margin: float, cosine_margin: float
) -> tf.Tensor:
    """Returns `cos(theta + angular_margin) - cosine_margin` for `cosines = cos(theta)`.

    Where `theta + angular_margin` exceeds pi, the first term is instead
    `cos(theta) - (1 - cos(angular_margin))`, see `MarginSoftmaxLoss`. The gradient is at most
    about 1,000: `sin(theta)` counts as at least 0.001. Rounding may take cosines slightly out
    of [-1, 1].
    """
    cosine, sine = math.cos(angular_margin), math.sin(angular_margin)
    squares = (1 - cosines) * (1 + cosines)
    sines = tf.sqrt(tf.maximum(squares, _LEAST_SINE**2))
    shifted = cosine * cosines - sine * sines
    linear = cosines - (1 - cosine)
    return tf.where(cosines >= -cosine, shifted, linear) - cosine_margin


@keras.saving.register_keras_serializable(package="tf_largeout")
class MarginSoftmaxLoss(SampledLoss):
    """Softmax of cosines, where labels must win by a margin (ArcFace, CosFace, PartialFC).

    The layer is a `LargeOutput` with `normalize=True` and `use_bias=False`. Its logits are
    `o_c = s cos(theta_c)`, where s is its `scale` and theta_c is the angle between features
    and class row. In training, the logits of the labels y are replaced by

        t_y = s (cos(theta_y + angular_margin) - cosine_margin),

    and the loss of an example is `log(sum_y exp(t_y) + sum_s exp(o'_s)) - mean_y t_y`. The sum
    over s is over the drawn classes that are not labels of the example, and
    `o'_s = o_s - log E[count_s]`. So the loss always scores the labels and samples the other
    classes, as in PartialFC. Unlike PartialFC, it corrects for the sampling: the sum over s is
    an unbiased estimate of the sum over all other classes. Without a sampler, the loss is
    exact: it works in blocks of classes, and its time and the gradient of the class rows are
    O(num_classes). An example with several labels gives each the target `1 / #labels`, and each
    label has the margin.

    With the default margins this is ArcFace. `angular_margin=0, cosine_margin=0.35` is CosFace.

    Where `theta + m` exceeds pi, `cos(theta + m)` would rise with theta. There, the loss uses
    `cos(theta) - (1 - cos m)` instead. Both are equal at `theta = pi - m`, and the second falls
    with theta, so the gradient always lowers the angle of a label. (The code of ArcFace's
    authors subtracts `m sin m` instead of `1 - cos m`, which causes a jump at `pi - m`.)

    A margin is part of the training, not of the model. So `evaluate`, `validation_data` and all
    metrics use the logits without margins: `evaluate` reports the exact softmax loss, which is
    comparable with that of other losses and of other margins.

    Args:
        angular_margin: The margin in radians, from 0 to pi / 2. The default, 0.5, is as in
            ArcFace.
        cosine_margin: The margin that is subtracted from the cosine, from 0 to 1.
        label_smoothing, class_weights: As in `SoftmaxLoss`, for logits with the margins.

    The other arguments are those of `SampledLoss`, without `remove_accidental_hits`: a label is
    never a negative. An exact pass is in float32.

    Raises:
        ValueError: If an argument is out of range; if the layer has `normalize=False`, biases
            or a `logit_soft_cap`; in training, if `label_smoothing` is used with a sampler that
            searches and has no tail; and in the cases that `TaggedLoss` names.

    References:
        Deng et al. 2019, "ArcFace: additive angular margin loss for deep face recognition",
        equations 3 and 4 (the combined margin).
        Wang et al. 2018, "CosFace: large margin cosine loss for deep face recognition", eq. 4.
        An et al. 2022, "Killing two birds with one stone: efficient and robust training of face
        recognition CNNs by Partial FC".

    Example:
        head = LargeOutput(100_000, "uniform", use_bias=False, normalize=True)
    """

    def __init__(
        self,
        angular_margin: float = 0.5,
        cosine_margin: float = 0.0,
        label_smoothing: float = 0.0,
        class_weights: TensorLike | None = None,
        **options: Unpack[ProductOptions],
    ) -> None:
        super().__init__(True, **options)
        self.angular_margin = _margin(
            "angular_margin", angular_margin, math.pi / 2, "pi / 2 (it is in radians)"
        )
        self.cosine_margin = _margin("cosine_margin", cosine_margin, 1, "1")
        self.cross_entropy = CrossEntropy(label_smoothing, class_weights=class_weights)

    def candidates(self, step: SampledStep, explicit: tf.Tensor | None = None) -> Candidates:
        """Like `SampledLoss.candidates`, with margins in the logits of the labels."""
        candidates = super().candidates(step, explicit)
        true_logits = self._with_margins(candidates.true_logits, step)
        return candidates._replace(true_logits=true_logits)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        true_logits, labels = candidates.true_logits, candidates.labels
        is_label = first_occurrences(labels)
        log_partition = with_labels(true_logits, candidates.log_partition(), is_label)
        return self.cross_entropy.of_candidates(candidates, log_partition, true_logits)

    def of_step(self, step: SampledStep) -> tf.Tensor:
        _check_form(step)
        if not step.training or step.sampler_name is not None:
            return super().of_step(step)
        labels = step.labels.ids
        log_others, logits = step.classes.exact_scores(
            tf.cast(step.features, tf.float32), labels, others_only=True
        )
        true_logits, is_label = self._with_margins(logits, step), step.distinct_labels

        def mean_logits() -> tf.Tensor:
            by_margins = tf.where(is_label, true_logits - logits, 0)
            return step.mean_logits() + tf.reduce_sum(by_margins, axis=1) / step.num_classes

        log_partition = with_labels(true_logits, log_others, is_label)
        return self.cross_entropy.of_scores(
            log_partition, true_logits, labels, step.num_classes, mean_logits
        )

    def _with_margins(self, logits: tf.Tensor, step: SampledStep) -> tf.Tensor:
        scale = step.classes.form.scale_value()
        margins = self.angular_margin, self.cosine_margin
        return scale * cosine_with_margins(logits / scale, *margins)

    def get_config(self) -> Config:
        config = {
            **super().get_config(),
            **self.cross_entropy.get_config(),
            "angular_margin": self.angular_margin,
            "cosine_margin": self.cosine_margin,
        }
        del config["remove_accidental_hits"]  # a label is never a negative
        del config["log_partition_penalty"]
        return config


def _margin(name: str, value: float, most: float, limit: str) -> float:
    margin = real_number(name, value, least=0)
    if margin > most:
        raise ValueError(f"`{name}` must be at most {limit}. Received: {name}={value!r}.")
    return margin


def _check_form(step: SampledStep) -> None:
    form = step.classes.form
    wrong = {
        "normalize=False": not form.unit_rows,
        "use_bias=True": step.classes.has_bias,
        f"logit_soft_cap={form.cap}": form.cap is not None,
    }
    received = [name for name, is_wrong in wrong.items() if is_wrong]
    if received:
        raise ValueError(
            "MarginSoftmaxLoss adds a margin to the angle between features and class rows, so "
            "the logits must be `scale * cos(angle)`. Use a LargeOutput(..., normalize=True, "
            f"use_bias=False) without a soft cap. Received: layer '{step.layer_name}' with "
            f"{', '.join(received)}."
        )


def margin_softmax(step: SampledStep, **options: Any) -> tf.Tensor:
    """Returns the losses of a `layer.step`, `[B]`; options are as in `MarginSoftmaxLoss`."""
    return losses_of(MarginSoftmaxLoss, step, options)
