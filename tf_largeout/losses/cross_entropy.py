"""The cross entropy between sets of labels and logits."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import pack, real_number
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, TensorLike


def softmax_cross_entropy(
    log_partition: tf.Tensor, true_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the cross entropy of a softmax; each label has the target `1 / #labels`.

    `log_partition - sum(true_logits) / #labels`, where `log_partition` is the log of the sum
    of `exp(logit)` over all classes. 0 for an example without labels.

    Args:
        log_partition: Float `[B]`.
        true_logits: Float `[B, L]`.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    weights = target_weights(has_label, true_logits.dtype)
    target = tf.reduce_sum(tf.where(has_label, weights * true_logits, 0), axis=-1)
    return tf.where(tf.reduce_any(has_label, axis=-1), log_partition - target, 0)


def target_weights(has_label: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the target probability of each label, `1 / #labels`: `[B, L]`, 0 at padding."""
    present = tf.cast(has_label, dtype)
    return tf.math.divide_no_nan(present, tf.reduce_sum(present, axis=-1, keepdims=True))


class CrossEntropy:
    """The cross entropy of a softmax with smoothed, soft or weighted targets.

    The loss of an example with logits o is

        W (log Z + p (log Z)^2) - (1 - e) sum_y w_y t_y o_y - u mean_c o_c

    where Z is the sum of `exp(o_c)` over all classes c, y runs over the labels, `t_y` are their
    targets and `w_y` their class weights. e is `label_smoothing` and p is
    `log_partition_penalty`. The targets are `1 / #labels`, or soft targets with a sum T <= 1.
    The rest, `1 - T`, is spread uniformly over all classes, as for a teacher of which only the
    best k probabilities are known. So `u = e sum_y w_y t_y + 1 - T`, and
    `W = sum_y w_y t_y + 1 - T`.

    A class weight multiplies the whole term of a label, including its smoothed part. Weights of
    classes that are not labels of the example have no effect.

    With one label per example, label smoothing equals that of
    `keras.losses.CategoricalCrossentropy`, and class weights equal `class_weight` in `fit`. The
    penalty is the auxiliary loss of PaLM (Chowdhery et al. 2022, section 5: "z-loss", with a
    factor of 1e-4). It keeps log Z near 0. `ZLoss` is another loss, by de Brebisson and
    Vincent.

    A sampled loss estimates the mean logit without bias from the labels and the sampled classes
    s, each divided by its expected count:

        mean_c o_c ~ (sum_y o_y + sum_s o_s / E[count_s]) / num_classes

    Its penalty uses the estimated log Z, so it is biased. `evaluate` reports the loss with
    exact values of both.

    Args:
        label_smoothing: e, in [0, 1).
        log_partition_penalty: p, at least 0.
        class_weights: Float `[num_classes]`, at least 0 and not all 0; None for 1. They are not
            normalized: the mean over a batch divides by the number of examples.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
    ) -> None:
        self.label_smoothing = real_number(
            "label_smoothing", label_smoothing, least=0, most=1, allow_most=False
        )
        self.log_partition_penalty = real_number(
            "log_partition_penalty", log_partition_penalty, least=0
        )
        self.class_weights = None if class_weights is None else _checked_weights(class_weights)
        if self.class_weights is not None:
            with tf.init_scope():
                self._weights = tf.constant(self.class_weights)

    def weights_of(self, labels: tf.Tensor, num_classes: int) -> tf.Tensor | None:
        """Returns the class weights of labels, float32 `[B, L]`, 0 at padding; None if all 1.

        Args:
            labels: int64 `[B, L]`, padded with -1.
            num_classes: Number of classes.

        Raises:
            ValueError: If the number of weights is not the number of classes.
        """
        if self.class_weights is None:
            return None
        if len(self.class_weights) != num_classes:
            raise ValueError(
                f"`class_weights` must have one weight for each of the {num_classes} classes. "
                f"Received: {len(self.class_weights)} weights."
            )
        weights = tf.gather(self._weights, tf.maximum(labels, 0))
        return tf.where(labels >= 0, weights, 0)

    def exact(
        self, step: Step, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, by one pass over all classes.

        Args:
            step: The step of `B` examples.
            compute_dtype: Dtype of the products, "float32" or "bfloat16".
            ranking: "logit", or "absolute" for a softmax of `|logit|`.
        """
        found, labels = step.statistics(compute_dtype, ranking), step.labels
        return self.of_scores(
            found.log_partition,
            found.true_logits,
            labels.ids,
            step.num_classes,
            lambda: step.mean_logits(ranking),
            labels.weights,
        )

    def of_candidates(
        self,
        candidates: Candidates,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        function: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, estimated from scored candidates.

        Args:
            candidates: The scored labels and sampled classes of `B` examples.
            log_partition: Float `[B]`, the estimated log Z.
            true_logits: Float `[B, L]`, logits of the labels in this softmax.
            function: Function that maps a logit to its value in this softmax.
        """
        return self.of_scores(
            log_partition,
            true_logits,
            candidates.labels,
            candidates.num_classes,
            lambda: candidates.sum_over_classes(function) / candidates.num_classes,
            candidates.label_weights,
        )

    def of_scores(
        self,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        labels: tf.Tensor,
        num_classes: int,
        mean_logits: Callable[[], tf.Tensor],
        soft_targets: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, from the scores of a given softmax.

        Args:
            log_partition: Float `[B]`, log Z.
            true_logits: Float `[B, L]`, logits of the labels.
            labels: int64 `[B, L]`, padded with -1.
            num_classes: Number of classes.
            mean_logits: Function that returns the mean logit of all classes, `[B]`.
            soft_targets: Float `[B, L]`, the probabilities of the labels; None for equal ones.
        """
        has_label, class_weights = labels >= 0, self.weights_of(labels, num_classes)
        smoothing, penalty = self.label_smoothing, self.log_partition_penalty
        if soft_targets is None and class_weights is None and not smoothing and not penalty:
            return softmax_cross_entropy(log_partition, true_logits, has_label)
        targets, rest = soft_targets, tf.zeros_like(log_partition)
        if targets is None:
            targets = target_weights(has_label, true_logits.dtype)
        else:
            rest = tf.maximum(1 - tf.reduce_sum(targets, axis=-1), 0)
        if class_weights is not None:
            targets *= class_weights
        of_labels = tf.reduce_sum(targets, axis=-1)
        true_part = tf.reduce_sum(tf.where(has_label, targets * true_logits, 0), axis=-1)
        losses = (of_labels + rest) * log_partition - (1 - smoothing) * true_part
        if penalty:
            losses += (of_labels + rest) * penalty * log_partition**2
        if smoothing or soft_targets is not None:
            losses -= (smoothing * of_labels + rest) * mean_logits()
        return tf.where(tf.reduce_any(has_label, axis=-1), losses, 0)

    def get_config(self) -> Config:
        """Returns the arguments, with the class weights in compressed form."""
        weights = self.class_weights
        return {
            "label_smoothing": self.label_smoothing,
            "log_partition_penalty": self.log_partition_penalty,
            "class_weights": None if weights is None else pack(weights),
        }


def _checked_weights(class_weights: TensorLike) -> np.ndarray:
    weights = np.asarray(class_weights)
    if weights.ndim != 1 or weights.size == 0 or weights.dtype.kind not in "iuf":
        raise ValueError(
            "`class_weights` must be a list of numbers, one per class. Received an array of "
            f"shape {weights.shape} and dtype {weights.dtype}. (A dict of weights is the "
            "`class_weight` of `fit`.)"
        )
    weights = weights.astype("<f4")
    if not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.max() == 0:
        raise ValueError(
            "`class_weights` must be finite, at least 0 and not all 0. Received weights from "
            f"{weights.min()} to {weights.max()}."
        )
    return weights
