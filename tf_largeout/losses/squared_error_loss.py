"""`SquaredErrorLoss`: the squared distance of all logits from sparse targets."""

import keras
import tensorflow as tf

from tf_largeout.losses.spherical_loss import SphericalLoss
from tf_largeout.tags.factored_logits import FactoredLogits
from tf_largeout.tags.output_tag import tag_of
from tf_largeout.types import TensorLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class SquaredErrorLoss(SphericalLoss):
    """`sum_c (o_c - t_c)^2 = q - 2 sum_k a_k t_k + sum_k t_k^2` for sparse targets t.

    Vincent et al. 2015, section 3. Targets are 1 for labels and 0 for other classes, or the
    values in `y_true`. The loss is the sum over classes, not the mean. So updates are stable up
    to a learning rate of about `1 / max |h|^2`, where h are the features.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.

    Call arguments:
        y_true: Integer class ids as for all losses, but repeated labels count once. Or the
            nonzero targets as a `tf.SparseTensor` `[batch, num_classes]` of floats.
    """

    def __call__(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        tag = tag_of(y_pred, type(self).__name__, self.tag_class)
        if tag is not None and isinstance(y_true, tf.SparseTensor):
            y_true = tag.sparse_targets(y_true)
        return super().__call__(y_true, y_pred, sample_weight)

    def counted_examples(self, tag: FactoredLogits, labels: tf.Tensor) -> tf.Tensor:
        """Returns which examples have a label. With sparse targets, all examples count."""
        return tag.targets(labels)[1]

    def example_losses(self, tag: FactoredLogits, labels: tf.Tensor) -> tf.Tensor:
        found, (targets, counts) = tag.spheres(labels), tag.targets(labels)
        by_target = targets * (targets - 2 * found.true_logits)
        return tf.where(counts, found.squares + tf.reduce_sum(by_target, axis=-1), 0)
