import numpy as np
import pytest
import tensorflow as tf

from tests.search.rows import BIAS, QUERIES, ROWS, add_weight, kept_weights
from tf_largeout.ops import sampling_ops, table_sampling_ops
from tf_largeout.papers.kernel_tree.kernel_tree import KernelTree
from tf_largeout.search.inverted_file import InvertedFile

IDS = np.arange(len(ROWS))
NUM_SAMPLED = 20_000


def closed_forms_and_tables():
    num_classes, labels = 300_000, np.arange(1000)
    weights = tf.Variable(1 / np.arange(1.0, num_classes + 1))

    def draws(seed):
        results = [
            op(labels, seed, num_classes, NUM_SAMPLED, unique)
            for op in (sampling_ops.uniform_sample, sampling_ops.log_uniform_sample)
            for unique in (False, True)
        ]
        tables = table_sampling_ops.alias_table(weights)
        results.append(table_sampling_ops.alias_sample(labels, seed, *tables, NUM_SAMPLED))
        tables = table_sampling_ops.pivotal_table(weights, NUM_SAMPLED, num_classes // 4)
        results.append(table_sampling_ops.pivotal_sample(labels, seed, *tables, NUM_SAMPLED))
        return [tensor for result in results for tensor in result]

    return draws


def inverted_file():
    file, rows = InvertedFile(), tf.Variable(ROWS)
    file.build(*ROWS.shape, add_weight)

    def draws(seed):
        file.fit(rows)
        return file.distribution(tf.constant(QUERIES)).draw(NUM_SAMPLED, seed)

    return draws


def tree(projection_dim):
    """Draws from a tree after a build and an update, and the state of the tree."""
    tree, kept = KernelTree(projection_dim=projection_dim), []
    rows, bias, labels = tf.Variable(ROWS), tf.Variable(BIAS), np.tile(IDS, [len(QUERIES), 1])
    tree.build(*ROWS.shape, True, kept_weights(kept))

    def draws(seed):
        tree.keep_up(seed, rows, bias)
        rows.assign(-2 * rows)
        tree.rows_changed(tf.constant(IDS))
        tree.keep_up(seed, rows, bias)
        sampled = tree.sample(tf.constant(QUERIES), labels, seed, NUM_SAMPLED, rows, bias)
        return [*sampled, *(tf.convert_to_tensor(weight) for weight in kept)]

    return draws


def all_draws():
    """Returns a function of the seed that draws in all ways, from new tables."""
    parts = [closed_forms_and_tables(), inverted_file(), tree(None), tree(5)]
    return lambda seed: [tf.identity(tensor) for part in parts for tensor in part(seed)]


def on_one_thread(function, seed):
    """Returns the result of the function if each of its ops has one thread.

    The seed comes from the data: ops of constants alone would run while TensorFlow simplifies
    the graph, on other threads.
    """
    data = tf.data.Dataset.from_tensors(seed).map(lambda seed: tuple(function(seed)))
    options = tf.data.Options()
    options.threading.max_intra_op_parallelism = 1
    return next(iter(data.with_options(options)))


@pytest.mark.slow
def test_draws_do_not_depend_on_the_number_of_threads():
    seed = tf.constant([7, 8], tf.int64)
    on_all = all_draws()(seed)
    for one, other in zip(on_one_thread(all_draws(), seed), on_all, strict=True):
        np.testing.assert_array_equal(one, other)
