"""The base class of the losses that sum over some classes and sample the others."""

import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.losses.sampled_softmax_loss import sampled_softmax_loss
from tf_largeout.steps.candidates import Candidates
from tf_largeout.types import Config, DTypeLike


class NormalizationLoss(SampledLoss):
    """Base of the maximum likelihood losses with a sampled sum (Barber & Botev 2016).

    The partition function is the sum of `exp(o_c)` over all classes c with logits `o_c`. The
    loss computes this sum exactly over a set C of classes that contains the labels. It
    estimates the rest of the sum from the sample S. Each sampled class is weighted by the
    reciprocal of its expected count:

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / E[count_d]

    A drawn class of C has no effect, so the expected value of the estimate is the partition
    function. The set C of an example also contains the classes that a search found for it.
    Because the sum contains the label, the weights of all classes are in [0, 1], and the
    derivatives with respect to logits are in [-1, 1] (equation 26).

    A subclass defines which expected counts it accepts.

    Args:
        complement: "label" if C contains the labels of the example. "batch" if C contains the
            labels of the whole batch, so that the labels of the other examples are negatives
            too.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the matrix products in training; see `SampledLoss`.
        ignore_class: As in `TaggedLoss`.

    Raises:
        ValueError: If `complement` is neither "label" nor "batch"; in training, if the loss
            does not accept the sampler's expected counts.
    """

    def __init__(
        self,
        complement: str = "label",
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(True, reduction, name, dtype, compute_dtype, ignore_class)
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
        del config["remove_accidental_hits"]  # hits never have an effect here
        return config
