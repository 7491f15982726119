"""`ImportanceNormalizationLoss`: maximum likelihood with importance sampling."""

import keras

from tf_largeout.losses.normalization_loss import NormalizationLoss
from tf_largeout.sampled_values import DRAWS, PROBABILITIES
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class ImportanceNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with an importance sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / (K q'_d)

    of Barber & Botev 2016, section 2.1. The sum over C is exact. `q' = q / (1 - q(C))` is the
    sampler's distribution on the complement of C, in which `K = m (1 - q(C))` of the m draws
    are expected; draws in C have no effect. So `kappa_d = 1 / (m q_d)`, and the expected value
    of the sum is the partition function. For draws without replacement, `kappa_d` is
    `1 / E[count_d]`. The derivatives with respect to logits are in [-1, 1].

    With `complement="label"` it equals `SampledSoftmaxLoss`. With "batch" the sum is closer to
    the partition function, and each example is also scored with the labels of all others.

    In `evaluate` it reports the exact softmax loss.

    Args:
        complement: "label" if C contains the labels of the example, or "batch" if it contains
            the labels of the whole batch, which then serve as negatives for each other.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: Dtype of the products with shared classes, see `SampledLoss`.

    Raises:
        ValueError: If `complement` is neither "label" nor "batch"; in training, if the sampler
            is a search without a tail, because hard classes alone give no estimate.
    """

    counts_taken = (DRAWS, PROBABILITIES)
    what_to_take = (
        "Use a static sampler, such as UniformSampler, SoftmaxSampler, or a search with a "
        "tail: InvertedFileSampler(num_sampled, num_hard=16)."
    )

    def __init__(
        self,
        complement: str = "label",
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "importance_normalization_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(complement, reduction, name, dtype, compute_dtype)
