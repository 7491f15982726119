"""Searches of inverted files on the GPU, compared with the CPU."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tests.ops.inverted_file_ops_test import Problem
from tf_largeout.ops import inverted_file_ops as ops

pytestmark = pytest.mark.gpu


def search(problem, num_probes, k):
    """Searches a file that was fitted on the CPU, on the device of the scope."""
    with tf.device("CPU:0"):
        made = problem()
        made.fit()
    state = [tf.Variable(variable.numpy()) for variable in made.state[:6]]
    return ops.inverted_file_search(made.features, state, num_probes, k)


@pytest.mark.parametrize("shape", [(1, 1, 1), (600, 20, 30), (3000, 128, 200)], ids=str)
@pytest.mark.parametrize("batch", [0, 1, 70])
@pytest.mark.parametrize("k", [1, 64])
def test_a_search_of_all_lists_has_the_scores_of_the_cpu(shape, batch, k):
    num_lists = shape[2]
    gpu.assert_same_on_gpu(lambda: search(lambda: Problem(*shape, batch), num_lists, k)[0])


def test_a_search_of_few_lists_finds_most_classes_of_the_cpu():
    def compute():
        return search(lambda: Problem(3000, 20, 200, 40), 8, 16)

    (_, got), (_, expected) = gpu.on_gpu(compute), gpu.on_cpu(compute)
    same = [len(set(a) & set(b)) for a, b in zip(got, expected, strict=True)]
    assert np.mean(same) > 15.5  # The score of a mean may differ in its last bit.


def test_nothing_is_found_before_the_lists_are_fitted():
    def compute():
        state = [tf.Variable(tf.zeros_like(v)) for v in Problem().state[:6]]
        return ops.inverted_file_search(Problem().features, state, 4, 3)

    gpu.assert_same_on_gpu(compute, exact=True)


def test_rows_that_are_not_finite_are_never_found():
    def problem():
        made = Problem()
        made.embeddings.scatter_nd_update([[3], [4]], [[np.nan] * 20, [0.0] * 20])
        made.features[0] = np.inf
        return made

    gpu.assert_same_on_gpu(lambda: search(problem, 30, 600)[0])
    ids = gpu.on_gpu(lambda: search(problem, 30, 600))[1]
    assert np.all(ids[0] == -1) and not np.any(ids == 3)


@pytest.mark.parametrize(("num_probes", "k"), [(1, 2049), (2100, 1)])
def test_a_k_above_the_limit_of_the_gpu_raises_an_error(num_probes, k):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2048"):
        gpu.on_gpu(lambda: search(lambda: Problem(3000, 4, 2100), num_probes, k))
