"""`BernoulliNormalizationLoss`: maximum likelihood, each class summed with a probability."""

import keras

from tf_largeout.losses.normalization_loss import NormalizationLoss
from tf_largeout.sampled_values import PROBABILITIES
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class BernoulliNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with a Bernoulli sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} exp(o_d) / b_d)

    of Barber & Botev 2016, section 2.1: C is summed, and each class d of the complement is in S
    with probability `b_d`, at most once, so that the sum is exact where all `b_d` are 1. Its
    mean over all draws is the partition function. The derivatives by logits are in [-1, 1].

    In `evaluate` it reports the exact softmax loss.

    Args:
        complement: Of what: "label", where C holds the labels of the row, or "batch", where it
            holds those of all rows of the batch, which then serve each other as negatives.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: Of the products of shared classes, see `SampledLoss`.

    Raises:
        ValueError: If `complement` is neither of the two; in training, if the expected counts
            of the sampler are no probabilities of being drawn.
    """

    counts_taken = (PROBABILITIES,)
    what_to_take = (
        "Take BernoulliSampler, another static sampler with unique=True, or a search with such "
        "a tail: InvertedFileSampler(num_sampled, num_hard=16)."
    )

    def __init__(
        self,
        complement: str = "label",
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "bernoulli_normalization_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(complement, reduction, name, dtype, compute_dtype)
