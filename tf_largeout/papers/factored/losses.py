"""The spherical family of losses: they need only sums of the logits and of their squares."""

import math

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.losses.base import TaggedLoss, target_weights
from tf_largeout.papers.factored.factored_step import (
    FactoredStep,
)
from tf_largeout.types import Config, DTypeLike


class SphericalLoss(TaggedLoss[FactoredStep]):
    """Base of the losses of the spherical family, which train a `FactoredOutput` exactly.

    Such a loss depends only on three values of the N logits `o` of an example (Vincent et al.
    2015, section 4): the logits `a` of the labels, the squared length `q = sum_c o_c^2` and the
    sum `s = sum_c o_c`. The layer computes these values in O(dim^2) time per example. A
    subclass defines `label_losses`. The loss of an example is the mean over its labels. With
    soft targets, it is the sum over its labels, each multiplied by its target; their sum is at
    most 1.

    In `evaluate`, the loss reports its own exact value, at the same cost as in training.

    Attributes:
        is_cross_entropy: Whether a label's loss is `-log p` for probabilities that sum to 1.
            `Perplexity` then uses these probabilities.

    The arguments are those of `TaggedLoss`.
    """

    step_class = FactoredStep
    is_cross_entropy, takes_soft_targets = False, True

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        """Returns the loss of each label, `[B, L]`, by differentiable TensorFlow operations.

        All are float64. `squares` and `sums` are `q` and `s`, `[B, 1]`; `true_logits` is `a`,
        `[B, L]`, and 0 at padding. Values at padding have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `label_losses`.")

    def of_step(self, step: FactoredStep) -> tf.Tensor:
        found, has_label = step.spheres(), step.labels.ids >= 0
        losses = self.label_losses(*found.as_columns(), step.num_classes)
        soft = step.labels.weights
        if soft is None:
            weights = target_weights(has_label, losses.dtype)
        else:
            weights = tf.cast(soft, losses.dtype)
        return tf.reduce_sum(tf.where(has_label, weights * losses, 0), axis=-1)


@keras.saving.register_keras_serializable(package="tf_largeout")
class TaylorSoftmaxLoss(SphericalLoss):
    """Cross entropy of the Taylor softmax, `-log((1 + a + a^2 / 2) / (N + s + q / 2))`.

    In this formula, a is the logit of the label, N is the number of classes, s is the sum of
    all logits and q is the sum of their squares. The model predicts class c with a probability
    proportional to `1 + o_c + o_c^2 / 2`. These are the first terms of `exp(o_c)`, and their
    sum is positive for any logit (Vincent et al. 2015; de Brebisson and Vincent 2016, "An
    exploration of softmax alternatives belonging to the spherical loss family"). For logits
    near 0, these probabilities are close to those of the softmax. The probability is lowest for
    a logit of -1. A logit below -2 has a higher probability than a logit of 0. So a layer that
    is trained with this loss ranks by `|1 + o_c|`.

    The arguments are those of `TaggedLoss`.
    """

    is_cross_entropy, ranking = True, "taylor"

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        log_partition = tf.math.log(num_classes + sums + squares / 2)
        return log_partition - tf.math.log(1 + true_logits + true_logits**2 / 2)


@keras.saving.register_keras_serializable(package="tf_largeout")
class SphericalSoftmaxLoss(SphericalLoss):
    """Cross entropy of the spherical softmax, `-log((a^2 + epsilon) / (q + N epsilon))`.

    The model predicts class c with probability `(o_c^2 + epsilon) / sum_d (o_d^2 + epsilon)`
    (Vincent et al. 2015; de Brebisson and Vincent 2016, "An exploration of softmax alternatives
    belonging to the spherical loss family"). A class with a large negative logit is as likely
    as one with a large positive logit. So a layer that is trained with this loss ranks by
    `|o_c|`. If all class rows are 0, the model does not learn: keep the default
    `embeddings_initializer` of the layer.

    Args:
        epsilon: A number above 0, the weight of a class whose logit is 0. It keeps the loss
            finite.

    The other arguments are those of `TaggedLoss`.

    Raises:
        ValueError: If `epsilon` is not a number above 0.
    """

    is_cross_entropy, ranking = True, "absolute"

    def __init__(
        self,
        epsilon: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "spherical_softmax_loss",
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.epsilon = real_number("epsilon", epsilon, 0.0, allow_least=False)

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        log_partition = tf.math.log(squares + num_classes * self.epsilon)
        return log_partition - tf.math.log(true_logits**2 + self.epsilon)

    def get_config(self) -> Config:
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="tf_largeout")
class ZLoss(SphericalLoss):
    """`scale softplus(slope (target - z))` of a label's standardised logit `z`.

    `z = (a - mean) / deviation`, where a is the logit of the label. Mean and standard deviation
    are taken over the logits of all N classes: `mean = s / N` and
    `deviation^2 = q / N - mean^2`, with the sum s of the logits and the sum q of their squares
    (de Brebisson and Vincent 2016, "The Z-loss: a shift and scale invariant classification loss
    belonging to the spherical family"). The loss pushes the logit of the label to `target`
    standard deviations above the mean, whatever the scale of the logits. So it is a ranking
    loss and defines no probabilities. Tune the three arguments for your metric. (The paper
    calls them a, b and z_0.) If all class rows are equal, for example 0, the deviation is 0 and
    the loss is NaN.

    This is not the z-loss of PaLM, a penalty of log Z. For that penalty, use the argument
    `log_partition_penalty` of `SoftmaxLoss` or `SampledSoftmaxLoss`.

    Args:
        target: How many standard deviations above the mean the logit of a label should be. The
            highest of N random logits is about `sqrt(2 log N)` standard deviations above the
            mean, which is 5 for 200,000 classes. None, the default, is twice this number.
        slope: A number above 0. With a higher slope, the loss separates logits below the target
            more sharply from logits above it.
        scale: A number above 0, the factor of the loss. It has the same effect as a
            factor of the learning rate.

    The other arguments are those of `TaggedLoss`.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        target: float | None = None,
        slope: float = 1.0,
        scale: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "z_loss",
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.target = None if target is None else real_number("target", target, -math.inf)
        self.slope = real_number("slope", slope, 0.0, allow_least=False)
        self.scale = real_number("scale", scale, 0.0, allow_least=False)

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        mean = sums / num_classes
        deviation = tf.sqrt(squares / num_classes - mean**2)
        z = (true_logits - mean) / deviation
        target = self.target
        if target is None:
            target = 2 * math.sqrt(2 * math.log(num_classes))
        return self.scale * tf.nn.softplus(self.slope * (target - z))

    def get_config(self) -> Config:
        own = {"target": self.target, "slope": self.slope, "scale": self.scale}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tf_largeout")
class SquaredErrorLoss(SphericalLoss):
    """`sum_k (a_k - t_k)^2 + u sum_c o_c^2`: the squared error to sparse targets t.

    The first sum is over the classes that have a target, with logits a. The second sum is over
    all other classes, whose target is 0. u is `unobserved_weight`. With u = 1, the default, the
    loss is the squared distance of all logits from the targets (Vincent et al. 2015, section
    3). With a smaller u, classes without a target count less, as in implicit matrix
    factorization (Hu, Koren and Volinsky 2008, "Collaborative filtering for implicit feedback
    datasets"). With u = 0 they do not count.

    Targets are 1 for labels, or the values in `y_true`. The loss is the sum over classes, not
    the mean. So updates are stable up to a learning rate of about `1 / max |h|^2`, where h are
    the features.

    Args:
        unobserved_weight: u, a number of at least 0.

    The other arguments are those of `TaggedLoss`.

    Call arguments:
        y_true: Integer class ids as for all losses, but repeated labels count once. Or the
            targets as a `tf.SparseTensor` `[batch, num_classes]` of numbers. Values with equal
            indices are added. A value of 0 is a target. Metrics use the classes with a value
            above 0 as labels.

    Raises:
        ValueError: If `unobserved_weight` is not a number of at least 0, or sparse targets do
            not have one column per class.
        tf.errors.InvalidArgumentError: When the step runs, if sparse targets have an index out
            of range or a value that is not finite.
    """

    takes_soft_targets, takes_numeric_targets = False, True

    def __init__(
        self,
        unobserved_weight: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "squared_error_loss",
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.unobserved_weight = real_number("unobserved_weight", unobserved_weight, 0.0)

    def of_step(self, step: FactoredStep) -> tf.Tensor:
        found, targets = step.spheres(), step.targets()
        weight, logits = self.unobserved_weight, found.true_logits
        by_target = targets.values * (targets.values - 2 * logits)
        if weight != 1:
            by_target += (1 - weight) * tf.where(targets.observed, logits**2, 0)
        rows = weight * found.squares + tf.reduce_sum(by_target, axis=-1)
        return tf.where(targets.counts, rows, 0)

    def get_config(self) -> Config:
        return {**super().get_config(), "unobserved_weight": self.unobserved_weight}
