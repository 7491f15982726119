"""Sums and draws of kernel trees on the GPU equal those on the CPU up to rounding."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tests.papers.kernel_tree.kernel_tree_ops_test import Problem, each_form
from tf_largeout.papers.kernel_tree import kernel_tree_ops

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_kernels")]

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def written(problem):
    return [problem.sums, problem.projection.rows] if problem.projection else [problem.sums]


@pytest.mark.parametrize("num_classes", [1, 25, 300])
@each_form
def test_sums_equal_those_of_the_cpu(num_classes, form):
    gpu.assert_same_on_gpu(lambda: written(Problem(num_classes, **form).build()), **TOLERANCE)


@each_form
def test_an_update_is_bit_identical_to_a_build_and_skips_invalid_ids(form):
    ids = [7, 199, 7, -1, -2, 200, 2**40]

    def compute(again):
        problem = Problem(**form).build()
        embeddings = problem.embeddings.numpy()
        embeddings[[7, 199]] += 1
        problem.embeddings.assign(embeddings)
        state = problem.state()
        num_changed = again(tf.constant(ids, tf.int64), *state)
        return [*written(problem), num_changed]

    *updated, num_changed = gpu.on_gpu(lambda: compute(kernel_tree_ops.kernel_tree_update))
    *built, _ = gpu.on_gpu(lambda: compute(built_tree))
    for got, expected in zip(updated, built, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert num_changed == 2


def built_tree(ids, *state):
    kernel_tree_ops.kernel_tree_build(*state)
    return tf.size(ids)


@pytest.mark.parametrize("shared", [False, True])
@each_form
def test_draws_equal_those_of_the_cpu(form, shared):
    """So few draws that none falls between two classes whose masses differ by rounding."""

    def compute():
        labels = tf.constant([[0, -1], [199, 3], [-1, -1], [5, 5], [6, 7]], tf.int64)
        return Problem(**form).build().sample(60, labels, shared=shared)

    gpu.assert_same_on_gpu(compute, **TOLERANCE)


def test_an_empty_batch_draws_nothing():
    gpu.assert_same_on_gpu(
        lambda: Problem(batch=0).build().sample(60, tf.zeros([0, 1], tf.int64))
    )


def test_bad_features_and_labels_have_log_probabilities_of_nan():
    def compute(bad):
        problem = Problem().build()
        features = problem.features.numpy()
        features[1, 2] = bad
        problem.features.assign(features)
        return problem.sample(4, tf.constant([[0], [3], [200], [-2], [-1]], tf.int64))

    for bad in (np.nan, np.inf, 1e30):
        ids, log_q, label_log_q = gpu.on_gpu(lambda bad=bad: compute(bad))
        assert np.all((ids >= 0) & (ids < 200)) and np.all(ids[1] == 0)
        np.testing.assert_array_equal(np.isnan(log_q).all(axis=1), np.arange(5) == 1)
        assert np.isnan(log_q).sum() == 4
        np.testing.assert_array_equal(np.isnan(label_log_q[:, 0]), [0, 1, 1, 1, 0])
        assert label_log_q[4] == 0
