"""Claims of Barber & Botev 2016 that need no training."""

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
    # With K + 1 classes in all, no class has a lower rate than in the paper.
    assert np.all(samplers.bernoulli(COUNTS, 21)[others] >= paper)
    terms = np.random.default_rng(1).lognormal(0, 2, others.sum())
    ratio = partition.bernoulli_variance(terms, ours) / partition.bernoulli_variance(
        terms, paper
    )
    assert 1 < ratio < 1.06


@pytest.mark.parametrize("power", [0, 1])
def test_a_fixed_set_of_frequent_classes_does_not_help_draws_by_frequency(power):
    """Section 2.1.3: the 10 most frequent classes are summed, and 10 drawn instead of 20.

    Terms are the frequency to a power. Rates are those of the Bernoulli samples of the paper,
    and of draws by frequency without replacement, as if these were independent.
    """
    f = samplers.unigram(COUNTS)
    found = {}
    for fixed in (0, 10):
        rest, terms = np.arange(COUNTS.size) >= fixed, f[fixed:] ** power
        bernoulli = samplers.bernoulli(COUNTS, 20 - fixed, rest)[rest]
        unigram = samplers.expected_counts(f[rest] / f[rest].sum(), 20 - fixed, unique=True)
        for name, rates in {"bernoulli": bernoulli, "unigram": unigram}.items():
            found[name, fixed] = partition.bernoulli_variance(terms, rates)
    assert found["unigram", 0] < found["unigram", 10]
    # It helps Bernoulli samples if terms grow with the frequency, but not beyond the others.
    assert (found["bernoulli", 10] < 0.4 * found["bernoulli", 0]) == (power == 1)
    if power == 1:
        assert found["unigram", 0] < 0.8 * found["bernoulli", 10]


def mean_nce_gradient(logits, label, q, num_draws, log_z):
    """Returns the mean of equation 30 over the draws, by logit, with `p' = exp(o) / z`."""
    p, noise = np.exp(logits - log_z), num_draws * q
    positive = np.where(np.arange(len(q)) == label, noise / (p + noise), 0)
    return positive - noise * p / (p + noise)


def test_nce_with_many_draws_has_the_gradient_of_the_likelihood_only_if_z_is_the_sum():
    """Section 3.2: z of an example must be the sum of its exponentials, not 1."""
    logits = np.random.default_rng(2).normal(size=30)
    q, log_z = np.full(30, 1 / 30), np.logaddexp.reduce(logits)
    exact = (np.arange(30) == 4) - np.exp(logits - log_z)

    def distance(num_draws, z):
        return np.abs(mean_nce_gradient(logits, 4, q, num_draws, z) - exact).max()

    assert distance(1e6, log_z) < 1e-5 < 0.1 < distance(10, log_z)
    assert distance(1e6, 0.0) > 1
