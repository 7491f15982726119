"""`ImportanceNormalizationLoss`: maximum likelihood, the partition function by importance."""

import keras

from tf_largeout.losses.normalization_loss import NormalizationLoss
from tf_largeout.sampled_values import DRAWS, PROBABILITIES
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class ImportanceNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with an importance sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / (K q'_d)

    of Barber & Botev 2016, section 2.1: C is summed, `q' = q / (1 - q(C))` is the sampler's
    distribution on the complement of C, and `K = m (1 - q(C))` of its m draws are expected to
    be there; those in C have no effect. So `kappa_d = 1 / (m q_d)`, and the mean of the sum
    over all draws is the partition function, also where draws are without replacement and
    `1 / E[count_d]` stands for it. The derivatives by logits are in [-1, 1].

    With `complement="label"` it is `SampledSoftmaxLoss`. With "batch" the sum is closer to the
    partition function, for the product of each row with the labels of all others.

    In `evaluate` it reports the exact softmax loss.

    Args:
        complement: Of what: "label", where C holds the labels of the row, or "batch", where it
            holds those of all rows of the batch, which then serve each other as negatives.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: Of the products of shared classes, see `SampledLoss`.

    Raises:
        ValueError: If `complement` is neither of the two; in training, if the sampler is a
            search without a tail: the sum over hard classes alone estimates nothing.
    """

    counts_taken = (DRAWS, PROBABILITIES)
    what_to_take = (
        "Take a static sampler, such as UniformSampler, SoftmaxSampler, or a search with a "
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
