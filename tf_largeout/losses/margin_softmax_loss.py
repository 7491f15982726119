"""`MarginSoftmaxLoss`: softmax of cosines with a margin, over the labels and a sample."""

import math

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.losses.cross_entropy import CrossEntropy
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.losses.sampled_softmax_loss import with_labels
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.labels import first_occurrences
from tf_largeout.steps.step import SampledStep
from tf_largeout.types import Config, DTypeLike, TensorLike

# Smaller sines are mostly rounding errors of the cosine; the gradient divides by the sine.
_LEAST_SINE = 1e-3


def cosine_with_margins(
    cosines: tf.Tensor, angular_margin: float, cosine_margin: float
) -> tf.Tensor:
    """Returns `cos(theta + angular_margin) - cosine_margin` for `cosines = cos(theta)`.

    Where `theta + angular_margin` exceeds pi, the first term is instead
    `cos(theta) - (1 - cos(angular_margin))`, see `MarginSoftmaxLoss`. The gradient is at most
    about 1,000: `sin(theta)` counts as at least 0.001.

    Args:
        cosines: Float, of any shape. Rounding may take them slightly out of [-1, 1].
        angular_margin: In radians, from 0 to pi / 2.
        cosine_margin: Number.
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
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the products with shared classes; see `SampledLoss`. An exact
            pass is in float32.
        ignore_class: As in `TaggedLoss`.
        label_smoothing: The share e of the target that is spread uniformly over all classes, in
            [0, 1). The logits of labels have the margins here too. See `CrossEntropy`.
        class_weights: One weight per class, `[num_classes]`. None, the default, is 1 for all.
            The weight of a label multiplies its whole term, including its smoothed part. The
            loss is `sum_y w_y t_y (log Z - (1 - e) o_y - e mean_c o_c)`, where y runs over the
            labels of an example, and `t_y = 1 / #labels`. Weights of classes that are not
            labels have no effect. (In PyTorch they do: `mean_c` is weighted there.) See
            `CrossEntropy`.

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
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "margin_softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        label_smoothing: float = 0.0,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(True, reduction, name, dtype, compute_dtype, ignore_class)
        self.angular_margin = _margin(
            "angular_margin", angular_margin, math.pi / 2, "pi / 2 (it is in radians)"
        )
        self.cosine_margin = _margin("cosine_margin", cosine_margin, 1, "1")
        self.cross_entropy = CrossEntropy(label_smoothing, class_weights=class_weights)

    def candidates(self, step: SampledStep) -> Candidates:
        """Like `SampledLoss.candidates`, with margins in the logits of the labels."""
        candidates = super().candidates(step)
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

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        """Returns the exact softmax loss, without margins."""
        return self.cross_entropy.exact(step)

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
