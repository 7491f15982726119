"""Exact top k with rows packed to 8 bits, compared with float32 rows."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.class_problem import SHAPES, Problem
from tests.reference import class_scan as reference
from tests.reference.quantized_rows import quantized
from tf_largeout import ops
from tf_largeout.ops import class_scan_ops


def _expect_the_same_bits(problem, k):
    for one, other in zip(problem.top_k(k), problem.top_k(k, packed=True), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_top_k_of_packed_classes_equals_a_sort(for_all_simd_levels, shape, ties, bias):
    problem = Problem(*shape, ties=ties, bias=bias)
    k = min(9, shape[1])
    scores, ids = problem.top_k(k, packed=True)
    expected_scores, expected_ids = reference.top_k(problem.logits, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    _expect_the_same_bits(problem, k)


@pytest.mark.parametrize("batch", [1, 3, 130])
def test_packing_is_bit_identical_for_rows_of_any_norm(for_all_simd_levels, batch):
    problem = Problem(batch, 700, 64, 1)
    sizes = 10.0 ** np.random.default_rng(batch).uniform(-30, 15, [700, 1])
    sizes[::9] = 0
    problem.variables[0].assign(problem.embeddings * sizes)
    _expect_the_same_bits(problem, 20)


def test_a_feature_that_rounds_to_0_counts(for_all_simd_levels):
    queries, rows = np.zeros([3, 40], "float32"), np.zeros([50_000, 40], "float32")
    queries[:, :2] = 1, 0.3 / 127
    # No row is rounded, and few pass the filter; blocks in which most pass skip the filter.
    rows[:, 0] = np.linspace(1, 0.5, len(rows))
    rows[-1] = 0
    rows[-1, 1] = 1000
    embeddings = tf.Variable(rows)
    packed = ops.pack_classes(embeddings, None)
    _, ids = ops.class_top_k(queries, embeddings, None, 2, packed)
    np.testing.assert_array_equal(ids, [[49_999, 0]] * 3)


def test_rows_of_width_0_are_ranked_by_bias(for_all_simd_levels):
    _expect_the_same_bits(Problem(2, 100, 0, 1), 7)


def test_classes_with_nan_logits_come_last_as_without_packing():
    problem = Problem(3, 100, 40, 1)
    bias = problem.bias.copy()
    bias[[3, 5, 7]] = np.nan, np.inf, -np.inf
    problem.variables[1].assign(bias)
    _expect_the_same_bits(problem, 100)


def test_features_that_are_not_finite_and_logits_that_overflow_raise_an_error():
    embeddings = tf.Variable(tf.fill([50, 40], 2.0))
    packed = ops.pack_classes(embeddings, None)
    for value, message in ((np.nan, "must be finite"), (3e38, "must not overflow")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ops.class_top_k(tf.fill([2, 40], value), embeddings, None, 3, packed)


def test_packed_classes_of_other_shapes_raise_an_error():
    embeddings = tf.Variable(tf.ones([50, 40]))
    packed = ops.pack_classes(embeddings, None)
    other = ops.pack_classes(tf.Variable(tf.ones([70, 60])), None)
    for wrong in (packed._replace(codes=other.codes), packed._replace(scales=other.scales)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="packed_.* must be"):
            ops.class_top_k(tf.ones([2, 40]), embeddings, None, 3, wrong)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_top_k_of_8_bit_rows_alone_equals_a_sort(for_all_simd_levels, shape, bias):
    problem = Problem(*shape, bias=bias)
    count = len(problem.embeddings)
    k = min(9, count)
    packed = ops.pack_classes(*problem.variables)
    scores, ids = ops.packed_top_k(problem.features, packed, count, k)
    rounded = quantized(problem.embeddings)
    logits = reference.logits(problem.features, rounded, problem.bias)
    expected_scores, expected_ids = reference.top_k(logits, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)


def test_bad_arguments_of_a_search_in_8_bit_rows_raise_an_error():
    packed = ops.pack_classes(tf.Variable(tf.fill([50, 40], 2.0)), None)
    for features, count, k, message in (
        (tf.fill([2, 40], np.nan), 50, 3, "must be finite"),
        (tf.fill([2, 40], 3e38), 50, 3, "must not overflow"),
        (tf.ones([2, 60]), 50, 3, "packed_codes must be"),
        (tf.ones([2, 40]), 90, 3, "packed_codes must be"),
        (tf.ones([2, 40]), 50, 51, "k must be in"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ops.packed_top_k(features, packed, count, k)


def test_shapes_are_known_before_the_op_runs():
    embeddings = tf.Variable(tf.ones([50, 40]))

    @tf.function
    def pack():
        packed = class_scan_ops.pack_classes(embeddings, None)
        assert packed.codes.shape.as_list() == [64 * 48]
        assert packed.scales.shape.as_list() == [5 * 64]
        return packed

    packed = pack()
    assert packed.codes.shape == [64 * 48] and packed.scales.shape == [5 * 64]
