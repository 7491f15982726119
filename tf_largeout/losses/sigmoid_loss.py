"""`SigmoidLoss`: one logistic loss per class."""

import keras
import tensorflow as tf

from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.labels import first_occurrences
from tf_largeout.steps.step import SampledStep
from tf_largeout.types import Config, DTypeLike


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

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products with shared classes; see `SampledLoss`. An
            exact pass is in float32.
        ignore_class: As in `TaggedLoss`.

    Raises:
        ValueError: In training, if the sampler is a search without a tail, whose expected
            counts are unknown; and in the cases that `SampledLoss` names.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "sigmoid_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(True, reduction, name, dtype, compute_dtype, ignore_class)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        is_label = first_occurrences(candidates.labels)
        of_labels = tf.where(is_label, tf.math.softplus(-candidates.true_logits), 0)
        others = candidates.sum_over_others(tf.math.softplus)
        return tf.reduce_sum(of_labels, axis=1) + others

    def of_step(self, step: SampledStep) -> tf.Tensor:
        exact = step.training and step.sampler_name is None
        return self.exact_losses(step) if exact else super().of_step(step)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        # softplus(-o) = softplus(o) - o for the labels
        scorer, features, labels = step.classes, step.features, step.labels.ids
        total = scorer.sum_over_classes(features, tf.math.softplus, bool(step.training))
        own = scorer.dots(features, labels)
        of_labels = tf.reduce_sum(tf.where(step.distinct_labels, own, 0), axis=1)
        return tf.where(tf.reduce_any(labels >= 0, axis=1), total - of_labels, 0)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["remove_accidental_hits"]  # a label is never a negative
        return config
