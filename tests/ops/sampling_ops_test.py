"""Properties of all sampling ops, including those with tables."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tests.slow import slow_but
from tf_largeout.ops import sampling_ops, table_sampling_ops

NO_LABELS = np.zeros([0, 1], np.int64)


def closed_form(op):
    def make(num_classes, num_sampled, unique):
        return lambda labels, seed: op(labels, seed, num_classes, num_sampled, unique)

    return make


def zipf(num_classes):
    return 1 / np.arange(1.0, num_classes + 1)[::-1] ** 1.1


def table(num_classes, num_sampled, unique):
    if unique:
        tables = table_sampling_ops.pivotal_table(zipf(num_classes), num_sampled, 3)
        op = table_sampling_ops.pivotal_sample
    else:
        tables = table_sampling_ops.alias_table(zipf(num_classes))
        op = table_sampling_ops.alias_sample
    return lambda labels, seed: op(labels, seed, *tables, num_sampled=num_sampled)


OPS = {
    "uniform": (closed_form(sampling_ops.uniform_sample), reference.uniform),
    "log_uniform": (closed_form(sampling_ops.log_uniform_sample), reference.log_uniform),
    "table": (table, lambda n: zipf(n) / zipf(n).sum()),
}
every_op = pytest.mark.parametrize("name", OPS)
both_ways = pytest.mark.parametrize("unique", [False, True])


@both_ways
@every_op
@pytest.mark.parametrize("num_classes, num_sampled", [(1, 1), (10, 4), (10, 10), (5000, 300)])
def test_expected_counts_follow_the_formula(name, unique, num_classes, num_sampled):
    make, distribution = OPS[name]
    labels = np.arange(num_classes)
    _, counts, _ = make(num_classes, num_sampled, unique)(labels, [3, 4])
    q = distribution(num_classes)
    expected = reference.expected_counts(q, num_sampled, unique)
    np.testing.assert_allclose(counts, expected, rtol=3e-6)


@both_ways
@every_op
def test_true_and_sampled_counts_agree_and_padding_has_count_one(name, unique):
    sample = OPS[name][0](50, 20, unique)
    ids, _, counts = sample(NO_LABELS, [5, 6])
    labels = np.concatenate([ids.numpy().reshape(5, 4), np.full([5, 1], -1)], axis=1)
    _, true_counts, again = sample(labels, [5, 6])
    np.testing.assert_array_equal(true_counts[:, :4], counts.numpy().reshape(5, 4))
    np.testing.assert_array_equal(true_counts[:, 4], 1)
    np.testing.assert_array_equal(again, counts)


@pytest.mark.parametrize(
    "name", slow_but(["uniform", "table"], ["uniform", "log_uniform", "table"])
)
def test_pairs_are_as_frequent_as_in_the_pivotal_method(name):
    make, distribution = OPS[name]
    num_classes, num_sampled, samples = 6, 3, 20_000
    pi = reference.expected_counts(distribution(num_classes), num_sampled, True)
    pairs = np.zeros([num_classes] * 2)
    for start in range(num_classes):  # The walk starts at each class in proportion to its pi.
        order = np.roll(np.arange(num_classes), -start)
        _, second = reference.ordered_pivotal_inclusion(pi[order])
        pairs[np.ix_(order, order)] += second * pi[start] / num_sampled
    np.testing.assert_allclose(np.diag(pairs), pi, atol=1e-9)

    sample = make(num_classes, num_sampled, True)
    drawn = tf.function(
        lambda seeds: tf.map_fn(lambda seed: sample(NO_LABELS, [seed, 0])[0], seeds)
    )(tf.range(samples, dtype=tf.int64))
    present = tf.reduce_sum(tf.one_hot(drawn, num_classes), axis=1).numpy()
    counted = present.T @ present
    sigma = np.sqrt(samples * pairs * (1 - pairs))
    assert np.all(np.abs(counted - samples * pairs) <= 5 * sigma + 1e-6 * samples)


@both_ways
@every_op
def test_draws_depend_on_all_bits_of_the_seed(name, unique):
    sample = OPS[name][0](100_000, 50, unique)
    seeds = [[0, 0], [1, 0], [0, 1], [1 << 32, 0], [0, 1 << 32], [-1, 0]]
    draws = {tuple(sample(NO_LABELS, seed)[0].numpy()) for seed in seeds}
    assert len(draws) == len(seeds)


@both_ways
@every_op
def test_shapes_are_inferred_in_graphs(name, unique):
    sample = OPS[name][0](100, 7, unique)
    function = tf.function(sample).get_concrete_function(
        tf.TensorSpec([None, 3], tf.int64), tf.TensorSpec([2], tf.int64)
    )
    shapes = [output.shape.as_list() for output in function.outputs]
    assert shapes == [[7], [None, 3], [7]]


@both_ways
@every_op
@pytest.mark.parametrize("label", [-2, 100, 2**40])
def test_labels_out_of_range_raise_an_error(name, unique, label):
    sample = OPS[name][0](100, 7, unique)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"labels.*\[0, 100\).*got {label} "
    ):
        sample([[1], [label]], [0, 0])


@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
def test_more_distinct_samples_than_classes_raise_an_error(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_sampled=11.*num_classes=10"):
        OPS[name][0](10, 11, True)(NO_LABELS, [0, 0])


@every_op
def test_wrong_seed_shapes_raise_an_error(name):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="seed|hape"):
        OPS[name][0](10, 5, True)(NO_LABELS, [0, 0, 0])
