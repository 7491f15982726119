"""The base class of the losses that need only sums of the logits and of their squares."""

import tensorflow as tf

from tf_largeout.losses.cross_entropy import target_weights
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.papers.factored.factored_logits import FactoredStep


class SphericalLoss(TaggedLoss):
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

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: As in `TaggedLoss`.
    """

    step_class = FactoredStep
    is_cross_entropy, takes_soft_targets = False, True

    def label_losses(
        self, squares: tf.Tensor, sums: tf.Tensor, true_logits: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        """Returns the loss of each label, by differentiable TensorFlow operations.

        Args:
            squares: float64 `[B, 1]`, `q`.
            sums: float64 `[B, 1]`, `s`.
            true_logits: float64 `[B, L]`, `a`; 0 at padding.
            num_classes: `N`.

        Returns:
            float64 `[B, L]`; values at padding have no effect.
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
