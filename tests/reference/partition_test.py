"""Claims of Barber & Botev 2016 about their estimates of the partition function."""

import numpy as np
import pytest

from tests.reference import partition, samplers

COUNTS = 1000 // np.arange(1, 201)


@pytest.mark.parametrize("fraction", [0.02, 0.8])
@pytest.mark.parametrize("deviation", [0.1, 1.0])
def test_bernoulli_samples_do_not_always_have_less_variance(deviation, fraction):
    """Footnote 2 takes the mean of `Z^2` for `mu^2`; correct is `C sigma^2 + C^2 mu^2`."""
    num_classes = 50
    terms = np.random.default_rng(0).gamma(deviation**-2, deviation**2, [10_000, num_classes])
    q = np.full(num_classes, 1 / num_classes)
    draws = fraction * num_classes
    importance = np.mean([partition.importance_variance(z, q, draws) for z in terms])
    bernoulli = np.mean([partition.bernoulli_variance(z, draws * q) for z in terms])
    variance = deviation**2  # of a term, with the mean 1
    expected = variance * (num_classes - 1) / fraction
    assert importance == pytest.approx(expected, rel=0.05)
    expected = (variance + 1) * num_classes * (1 / fraction - 1)
    assert bernoulli == pytest.approx(expected, rel=0.05)
    assert (bernoulli < importance) == (fraction == 0.8 and deviation == 1.0)


@pytest.mark.parametrize("label", [0, 5, 199])
def test_bernoulli_rates_over_the_classes_other_than_the_label(label):
    """The paper draws K other classes per example, `BernoulliSampler` K classes in all."""
    others = np.arange(COUNTS.size) != label
    ours = samplers.bernoulli(COUNTS, 20)[others]
    paper = samplers.bernoulli(COUNTS, 20, others)[others]
    assert paper.sum() == pytest.approx(20) and ours.sum() < 20
    terms = np.random.default_rng(1).lognormal(0, 2, others.sum())
    ratio = partition.bernoulli_variance(terms, ours) / partition.bernoulli_variance(
        terms, paper
    )
    assert 1 < ratio < 1.06
