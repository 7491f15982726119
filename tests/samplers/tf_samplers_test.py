"""Samplers compared with the candidate samplers of `tf.random`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tf_largeout.ops import sampling_ops, table_sampling_ops

NUM_CLASSES, NUM_SAMPLED = 40, 500
COUNTS = (np.arange(NUM_CLASSES) % 9 + 1.0).tolist()


def tf_unigram(**kwargs):
    return tf.random.fixed_unigram_candidate_sampler(unigrams=COUNTS, distortion=0.75, **kwargs)


def our_unigram(labels, seed):
    tables = table_sampling_ops.alias_table(np.array(COUNTS) ** 0.75)
    return table_sampling_ops.alias_sample(labels, seed, *tables, num_sampled=NUM_SAMPLED)


def closed_form(op):
    return lambda labels, seed: op(labels, seed, NUM_CLASSES, NUM_SAMPLED, unique=False)


PAIRS = {
    "uniform": (
        tf.random.uniform_candidate_sampler,
        closed_form(sampling_ops.uniform_sample),
        reference.uniform(NUM_CLASSES),
    ),
    "log_uniform": (
        tf.random.log_uniform_candidate_sampler,
        closed_form(sampling_ops.log_uniform_sample),
        reference.log_uniform(NUM_CLASSES),
    ),
    "unigram": (tf_unigram, our_unigram, reference.unigram(COUNTS, 0.75)),
}
every_pair = pytest.mark.parametrize("name", PAIRS)


def of_tf(sampler, labels, seed):
    return sampler(
        true_classes=labels,
        num_true=labels.shape[1],
        num_sampled=NUM_SAMPLED,
        unique=False,
        range_max=NUM_CLASSES,
        seed=seed,
    )


@every_pair
def test_expected_counts_with_replacement_equal_those_of_tf(name):
    theirs, ours, _ = PAIRS[name]
    labels = np.arange(NUM_CLASSES)[:, np.newaxis]
    ids, true_counts, counts = ours(labels, [1, 2])
    their_ids, their_true_counts, their_counts = of_tf(theirs, labels, 1)
    np.testing.assert_allclose(true_counts, their_true_counts, rtol=1e-5)
    of_class = true_counts.numpy()[:, 0]
    np.testing.assert_allclose(counts, of_class[ids], rtol=1e-6)
    np.testing.assert_allclose(their_counts, of_class[their_ids], rtol=1e-5)


@pytest.mark.slow
@every_pair
def test_draws_have_the_distribution_of_tf(name):
    theirs, ours, q = PAIRS[name]
    labels = np.zeros([1, 1], np.int64)
    steps = 100
    expected = steps * NUM_SAMPLED * q
    for draw in (lambda i: ours(labels, [i, 0])[0], lambda i: of_tf(theirs, labels, i + 1)[0]):
        counted = sum(np.bincount(draw(i), minlength=NUM_CLASSES) for i in range(steps))
        assert np.all(np.abs(counted - expected) <= 5 * np.sqrt(expected * (1 - q)))
