"""`BernoulliNormalizationLoss`: maximum likelihood with Bernoulli sampling."""

import keras

from tf_largeout.papers.likelihood.normalization_loss import NormalizationLoss
from tf_largeout.sampled_values import PROBABILITIES


@keras.saving.register_keras_serializable(package="tf_largeout")
class BernoulliNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with a Bernoulli sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} exp(o_d) / b_d)

    of Barber & Botev 2016, section 2.1. Here `o_c` is the logit of class c, y is the label, C
    is a set of classes that contains y, and S is the sample. The sum over C is exact. A class d
    outside of C is in S at most once, with probability `b_d`. So the expected value of the
    whole sum is the partition function. If all `b_d` are 1, the sum is the partition function.
    The derivatives with respect to logits are in [-1, 1].

    In `evaluate`, the loss reports the exact softmax loss.

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
        ValueError: If `complement` is neither "label" nor "batch"; in training, if the expected
            counts of the sampler are not probabilities of being drawn.
    """

    counts_taken = (PROBABILITIES,)
    what_to_take = (
        "Use BernoulliSampler or another static sampler with unique=True. Or search for some "
        "negatives and draw the others with such a sampler, the tail: "
        "InvertedFileSampler(num_sampled, num_hard=16)."
    )
