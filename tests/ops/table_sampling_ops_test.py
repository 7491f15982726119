"""Sampling tables; `sampling_ops_test.py` tests draws from them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tf_largeout.ops import table_sampling_ops

NO_LABELS = np.zeros([0, 1], np.int64)


def zipf(num_classes):
    return 1 / np.arange(1.0, num_classes + 1)


@pytest.mark.parametrize("num_classes", [1, 2, 30, 1000])
def test_the_slots_of_an_alias_table_sum_to_the_probabilities(num_classes):
    weights = zipf(num_classes)
    slots, probability = (x.numpy() for x in table_sampling_ops.alias_table(weights))
    own = slots[:, 0] / 2.0**60
    received = own + np.bincount(slots[:, 1], 1 - own, minlength=num_classes)
    q = reference.unigram(weights)
    np.testing.assert_allclose(received / num_classes, q, rtol=1e-12)
    np.testing.assert_allclose(probability, q, rtol=1e-6)


@pytest.mark.parametrize("num_classes, num_sampled", [(1, 1), (30, 7), (30, 30), (1000, 20)])
def test_steps_of_cumulative_tables_are_inclusion_probabilities(num_classes, num_sampled):
    weights = zipf(num_classes)
    cumulative, index = table_sampling_ops.pivotal_table(weights, num_sampled, 5)
    pi = np.diff(cumulative) / (cumulative.numpy()[-1] / num_sampled)
    expected = reference.expected_counts(reference.unigram(weights), num_sampled, True)
    np.testing.assert_allclose(pi, expected, rtol=1e-9)
    assert np.all(np.diff(index) >= 0)
    assert index.shape == (6,)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_weights_that_are_not_positive_and_finite_raise_an_error(bad):
    weights = np.array([1.0, bad, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="class 1|must be finite"):
        table_sampling_ops.alias_table(weights)
    with pytest.raises(tf.errors.InvalidArgumentError, match="class 1|must be finite"):
        table_sampling_ops.pivotal_table(weights, 2, 1)


def test_the_error_of_empty_tables_says_how_to_fill_them():
    with pytest.raises(tf.errors.FailedPreconditionError, match="`adapt`"):
        table_sampling_ops.alias_sample(
            NO_LABELS, [0, 0], tf.zeros([9, 2], tf.int64), tf.zeros([9]), 3
        )
    with pytest.raises(tf.errors.FailedPreconditionError, match="`adapt`"):
        table_sampling_ops.pivotal_sample(
            NO_LABELS, [0, 0], tf.zeros([10], tf.int64), tf.zeros([4], tf.int64), 3
        )


def test_a_table_made_for_another_number_of_samples_raises_an_error():
    tables = table_sampling_ops.pivotal_table(zipf(9), 5, 3)
    with pytest.raises(tf.errors.FailedPreconditionError, match="num_sampled=3"):
        table_sampling_ops.pivotal_sample(NO_LABELS, [0, 0], *tables, num_sampled=3)


def test_damaged_tables_give_no_id_out_of_range():
    slots, probability = table_sampling_ops.alias_table(zipf(9))
    with pytest.raises(tf.errors.DataLossError, match="class 12345 of 9"):
        table_sampling_ops.alias_sample(
            NO_LABELS, [0, 0], tf.zeros_like(slots) + [0, 12345], probability, 50
        )
    cumulative, _ = table_sampling_ops.pivotal_table(zipf(9), 5, 3)
    ids, _, _ = table_sampling_ops.pivotal_sample(
        NO_LABELS, [0, 0], cumulative, [-7, 1 << 50, -3, 1 << 60], 5
    )
    assert np.all((ids >= 0) & (ids < 9))
