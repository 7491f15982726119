"""`TaylorSoftmaxLoss`: cross entropy with a Taylor expansion of the exponential."""

import keras
import tensorflow as tf

from tf_largeout.papers.factored.spherical_loss import SphericalLoss


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

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.
    """

    is_cross_entropy, ranking = True, "taylor"

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        log_partition = tf.math.log(num_classes + sums + squares / 2)
        return log_partition - tf.math.log(1 + true_logits + true_logits**2 / 2)
