"""The base class of the losses that sum over some classes and sample the complement."""

import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.losses.sampled_softmax_loss import sampled_softmax_loss
from tf_largeout.tags.candidates import Candidates
from tf_largeout.types import Config, DTypeLike


class NormalizationLoss(SampledLoss):
    """Base of the losses of maximum likelihood with a sampled sum (Barber & Botev 2016).

    The partition function is summed over a set C of classes that holds the labels, and
    estimated for the others, each weighed by the reciprocal of its expected count:

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / E[count_d]

    A class of C that is drawn has no effect, so that the mean of the estimate over all draws is
    the partition function. Classes that a search found for a row stand in its C as well. As the
    sum holds the label itself, the weights of all classes lie in [0, 1] and the derivatives by
    logits in [-1, 1] (equation 26).

    A subclass says which expected counts it takes.

    Args:
        complement: Of what: "label", where C holds the labels of the row, or "batch", where it
            holds those of all rows of the batch, which then serve each other as negatives.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: Of the products of shared classes, see `SampledLoss`.

    Raises:
        ValueError: If `complement` is neither of the two; in training, if the sampler is one
            whose expected counts the loss cannot take.
    """

    def __init__(
        self,
        complement: str = "label",
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(True, reduction, name, dtype, compute_dtype)
        self.complement = one_of("complement", complement, ["label", "batch"])

    def explicit_classes(self, labels: tf.Tensor) -> tf.Tensor | None:
        if self.complement == "label":
            return None
        ids = tf.unique(tf.reshape(labels, [-1])).y
        return tf.boolean_mask(ids, ids >= 0)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        # A sampled softmax whose labels keep their logits: equations 22 and 23.
        return sampled_softmax_loss(
            candidates.true_logits, candidates.log_partition(), candidates.has_label
        )

    def get_config(self) -> Config:
        config = {**super().get_config(), "complement": self.complement}
        del config["remove_accidental_hits"]  # they have no effect by the formula
        return config
