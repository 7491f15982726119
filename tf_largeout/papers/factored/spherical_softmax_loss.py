"""`SphericalSoftmaxLoss`: cross entropy of probabilities proportional to squared logits."""

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.papers.factored.spherical_loss import SphericalLoss
from tf_largeout.types import Config, DTypeLike


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
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.

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
