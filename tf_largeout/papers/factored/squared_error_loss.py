"""`SquaredErrorLoss`: the squared distance of all logits from sparse targets."""

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.papers.factored.factored_logits import (
    FactoredLabels,
    FactoredStep,
    FactoredTag,
)
from tf_largeout.papers.factored.spherical_loss import SphericalLoss
from tf_largeout.steps.labels import Labels
from tf_largeout.types import Config, DTypeLike, TensorLike


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
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.

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

    def labels(self, tag: FactoredTag, y_true: TensorLike) -> Labels:
        if isinstance(y_true, tf.SparseTensor):
            return tag.sparse_targets(y_true)
        return super().labels(tag, y_true)

    def counted_examples(self, tag: FactoredTag, labels: Labels) -> tf.Tensor:
        """Returns which examples have a label. With sparse targets, all examples count."""
        if isinstance(labels, FactoredLabels):
            return tf.ones(tf.shape(labels.ids)[:1], tf.bool)
        return super().counted_examples(tag, labels)

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
