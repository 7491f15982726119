import os
import pathlib
import subprocess
import sys
import zlib

import numpy as np
import tensorflow as tf

from tests.search.rows import BIAS, QUERIES, ROWS, add_weight, kept_weights
from tf_largeout.ops import sampling_ops, table_sampling_ops
from tf_largeout.search import InvertedFile, KernelTree

IDS = np.arange(len(ROWS))
ROOT = pathlib.Path(__file__).parents[2]
ON_ONE_THREAD = """
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
from tests.samplers.threads_test import checksums
print(checksums())
"""


def checksums():
    num_classes, num_sampled, labels, seed = 300_000, 20_000, np.arange(1000), [7, 8]
    weights = 1 / np.arange(1.0, num_classes + 1)
    results = [
        op(labels, seed, num_classes, num_sampled, unique)
        for op in (sampling_ops.uniform_sample, sampling_ops.log_uniform_sample)
        for unique in (False, True)
    ]
    tables = table_sampling_ops.alias_table(weights)
    results.append(table_sampling_ops.alias_sample(labels, seed, *tables, num_sampled))
    tables = table_sampling_ops.pivotal_table(weights, num_sampled, num_classes // 4)
    results.append(table_sampling_ops.pivotal_sample(labels, seed, *tables, num_sampled))
    file = InvertedFile()
    file.build(*ROWS.shape, add_weight)
    file.fit(tf.Variable(ROWS))
    results.append(file.distribution(tf.constant(QUERIES)).draw(num_sampled, seed))
    results += [draws_of_a_tree(num_sampled, seed, dim) for dim in (None, 5)]
    return [zlib.crc32(tensor.numpy().tobytes()) for result in results for tensor in result]


def draws_of_a_tree(num_sampled, seed, projection_dim):
    """Of one that was built and brought up to date."""
    tree, kept = KernelTree(projection_dim=projection_dim), []
    rows, bias, labels = tf.Variable(ROWS), tf.Variable(BIAS), np.tile(IDS, [len(QUERIES), 1])
    tree.build(*ROWS.shape, True, kept_weights(kept))
    tree.keep_up(seed, rows, bias)
    rows.assign(-2 * rows)
    tree.rows_changed(tf.constant(IDS))
    tree.keep_up(seed, rows, bias)
    sampled = tree.sample(tf.constant(QUERIES), labels, seed, num_sampled, rows, bias)
    return [*sampled, *(tf.convert_to_tensor(weight) for weight in kept)]


def test_draws_do_not_depend_on_the_number_of_threads():
    result = subprocess.run(
        [sys.executable, "-c", ON_ONE_THREAD],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(checksums())
