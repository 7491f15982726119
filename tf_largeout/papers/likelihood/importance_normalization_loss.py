"""`ImportanceNormalizationLoss`: maximum likelihood with importance sampling."""

import keras

from tf_largeout.papers.likelihood.normalization_loss import NormalizationLoss
from tf_largeout.sampled_values import DRAWS, PROBABILITIES


@keras.saving.register_keras_serializable(package="tf_largeout")
class ImportanceNormalizationLoss(NormalizationLoss):
    """Maximum likelihood with an importance sample of the partition function.

        -o_y + log(sum_{c in C} exp(o_c) + sum_{d in S - C} kappa_d exp(o_d)),
        kappa_d = 1 / (K q'_d)

    of Barber & Botev 2016, section 2.1. Here `o_c` is the logit of class c, y is the label, C
    is a set of classes that contains y, and S is the sample of m draws. The sum over C is
    exact, and draws in C have no effect. `q'_d = q_d / (1 - q(C))` is the distribution of the
    sampler outside of C, and `K = m (1 - q(C))` is the expected number of draws there. So
    `kappa_d = 1 / (m q_d)`, and the expected value of the whole sum is the partition function.
    For draws without replacement, `kappa_d` is `1 / E[count_d]`. The derivatives with respect
    to logits are in [-1, 1].

    With `complement="label"`, this loss equals `SampledSoftmaxLoss`. With "batch", the labels
    of the other examples are scored too, and the sum is closer to the partition function.

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
        ValueError: If `complement` is neither "label" nor "batch". Also in training, if the
            sampler takes all its classes from a search (`num_hard=None`), because the
            partition function cannot be estimated from these classes.
    """

    counts_taken = (DRAWS, PROBABILITIES)
    what_to_take = (
        "Use SoftmaxSampler or a static sampler, such as UniformSampler. Or search for some "
        "negatives and draw the others with a static sampler, the tail: "
        "InvertedFileSampler(num_sampled, num_hard=16)."
    )
