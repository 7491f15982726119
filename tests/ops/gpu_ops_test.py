"""Each op of docs/gpu.md has the same results on the GPU and the CPU."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tests.ops.class_problem import SHAPES, Problem
from tests.reference import class_scan as reference
from tf_largeout.ops import (
    bag_ops,
    candidate_ops,
    class_scan_ops,
    product_ops,
    row_dot_ops,
    sampling_ops,
    table_sampling_ops,
)
from tf_largeout.papers.lsh import hash_ops

pytestmark = pytest.mark.gpu


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def weighted_sum(outputs):
    """Returns a weighted sum of tensors, so that each element has a different gradient."""
    return tf.add_n([tf.reduce_sum(output * normal(*output.shape)) for output in outputs])


def own_classes(batch, dim, num_ids, num_classes=40):
    """Returns features, class variables, and ids with repeats and padding."""
    ids = np.random.default_rng(dim).integers(-1, num_classes, (batch, num_ids))
    variables = tf.Variable(normal(num_classes, dim, seed=1)), tf.Variable(normal(num_classes))
    return tf.constant(normal(batch, dim)), *variables, ids


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (5, 37, 13), (9, 128, 64), (70, 200, 3), (3, 16, 0), (0, 4, 3)],
    ids=str,
)
@pytest.mark.parametrize("num_shared", [0, 7, 50])
def test_row_dots_and_their_gradients_equal_those_of_the_cpu(shape, num_shared):
    shared = np.random.default_rng(1).integers(0, 40, num_shared)

    def compute():
        features, embeddings, bias, ids = own_classes(*shape)
        with tf.GradientTape() as tape:
            tape.watch(features)
            outputs = row_dot_ops.row_dots_and_rows(features, embeddings, bias, ids, shared)
            masked = [tf.where(ids >= 0, outputs[0], 0), *outputs[1:]]
            loss = weighted_sum(masked)
        return outputs, tape.gradient(loss, [features, embeddings, bias])

    gpu.assert_same_on_gpu(compute, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 37, 13), (9, 128, 64), (0, 4, 3)], ids=str)
def test_bag_sums_and_their_gradients_equal_those_of_the_cpu(shape):
    batch, dim, num_ids = shape

    def compute():
        _, table, _, ids = own_classes(batch, dim, num_ids)
        weights = tf.constant(normal(batch, num_ids))
        with tf.GradientTape() as tape:
            tape.watch(weights)
            sums = bag_ops.bag_sums(table, ids, weights)
            loss = weighted_sum([sums])
        d_table, d_weights = tape.gradient(loss, [table, weights])
        # Its last op is `tf.where`, which the emulated GPU runs on the CPU.
        return sums, d_table, tf.identity(d_weights)

    gpu.assert_same_on_gpu(compute, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [-2, 40, 2**40])
def test_row_dots_of_ids_out_of_range_are_nan(bad):
    def compute():
        features, embeddings, bias, ids = own_classes(5, 12, 6)
        ids[1, 2] = bad
        return row_dot_ops.row_dots_and_rows(features, embeddings, bias, ids, [3, bad, 4])

    logits, rows, biases = gpu.on_gpu(compute)
    np.testing.assert_array_equal(np.argwhere(np.isnan(logits)), [[1, 2]])
    np.testing.assert_array_equal(np.isnan(rows).all(axis=1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(biases), [False, True, False])


@pytest.mark.parametrize("shape", [*SHAPES, (0, 7, 5, 2), (6, 50, 5, 0)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_class_statistics_and_their_gradients_equal_those_of_the_cpu(shape, bias):
    def compute():
        problem = Problem(*shape, bias=bias)
        features = tf.constant(problem.features)
        sources = [features, *(v for v in problem.variables if v is not None)]
        with tf.GradientTape() as tape:
            tape.watch(features)
            log_partition, true_logits, _ = class_scan_ops.class_statistics(
                features, *problem.variables, problem.labels
            )
            loss = weighted_sum([log_partition, true_logits])
        return log_partition, true_logits, tape.gradient(loss, sources)

    gpu.assert_same_on_gpu(compute, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, (0, 7, 5, 2), (6, 50, 5, 0)], ids=str)
def test_label_logits_and_their_gradients_equal_those_of_the_cpu(shape):
    def compute():
        problem = Problem(*shape)
        with tf.GradientTape() as tape:
            arguments = tf.constant(problem.features), *problem.variables, problem.labels
            logits = class_scan_ops.label_logits(*arguments)
            loss = weighted_sum([logits])
        scanned = class_scan_ops.class_statistics(*arguments)[1]
        np.testing.assert_array_equal(logits, scanned)
        return logits, tape.gradient(loss, problem.variables)

    gpu.assert_same_on_gpu(compute, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(20, 300, 16, 9), (130, 97, 128, 1), (3, 9, 5, 12)], ids=str)
def test_ranks_of_given_logits_in_shards_equal_those_of_the_cpu(shape):
    def compute():
        problem = Problem(*shape, ties=True)
        true_logits = tf.constant(
            reference.true_logits(problem.logits, problem.labels), "float32"
        )
        with tf.GradientTape() as tape:
            shards = problem.shard_statistics(true_logits)
            loss = weighted_sum([shard[0] for shard in shards])
        gradients = tape.gradient(loss, tape.watched_variables())
        return shards, [gradient for gradient in gradients if gradient is not None]

    gpu.assert_same_on_gpu(compute, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ranks_and_top_k_with_ties_equal_those_of_the_cpu(shape):
    def compute():
        problem = Problem(*shape, ties=True)
        return problem.statistics()[1:], problem.top_k(min(7, shape[1]))

    gpu.assert_same_on_gpu(compute, exact=True)


@pytest.mark.parametrize("k", [1, 10, 1001, 2048])
def test_large_top_k_equals_that_of_the_cpu(k):
    gpu.assert_same_on_gpu(lambda: Problem(65, 3001, 33, 1).top_k(k)[0])


def test_a_k_above_the_limit_of_the_gpu_raises_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2048, got 2049"):
        gpu.on_gpu(lambda: Problem(3, 3001, 5, 1).top_k(2049))


@pytest.mark.parametrize("label", [-2, 40, 2**33])
def test_labels_out_of_range_have_no_logit_and_the_last_rank(label):
    def compute():
        problem = Problem(3, 40, 5, 2)
        problem.labels[1, 1] = label
        return problem.statistics()

    log_partition, true_logits, ranks = gpu.on_gpu(compute)
    assert np.all(np.isfinite(log_partition))
    np.testing.assert_array_equal(np.argwhere(np.isnan(true_logits)), [[1, 1]])
    assert ranks[1, 1] == 40


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("size", [(0, 4), (3, 0), (1, 1), (5, 37), (70, 300)], ids=str)
def test_candidate_logits_equal_those_of_the_cpu(per_row, size):
    batch, num_candidates = size
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 20, (batch, 3))
    candidates = rng.integers(0, 20, size if per_row else num_candidates)
    true_logits = rng.integers(0, 6, (batch, 3)).astype("float32")

    def compute():
        logits = tf.constant(normal(*size))
        offsets = tf.constant(normal(*candidates.shape, seed=1))
        arguments = logits, offsets, labels, candidates
        return (
            candidate_ops.mask_accidental_hits(logits, labels, candidates),
            candidate_ops.shifted_candidate_logits(*arguments),
            candidate_ops.candidate_ranks(
                tf.round(logits), tf.round(offsets), labels, candidates, labels, true_logits
            ),
        )

    def log_partition():
        sources = tf.constant(normal(*size)), tf.constant(normal(*candidates.shape, seed=1))
        with tf.GradientTape() as tape:
            tape.watch(sources)
            result = candidate_ops.candidate_log_partition(*sources, labels, candidates)
            loss = weighted_sum([result])
        return result, tape.gradient(loss, sources)

    gpu.assert_same_on_gpu(compute, exact=True)
    gpu.assert_same_on_gpu(log_partition)


def tables(num_classes, num_sampled, unique):
    weights = 1 / np.arange(1.0, num_classes + 1)[::-1] ** 1.1
    with tf.device("CPU:0"):
        if unique:
            return table_sampling_ops.pivotal_table(weights, num_sampled, num_classes // 4 + 1)
        return table_sampling_ops.alias_table(weights)


def draw(name, labels, seed, num_classes, num_sampled, unique):
    if name == "table":
        op = table_sampling_ops.pivotal_sample if unique else table_sampling_ops.alias_sample
        made = tables(num_classes, num_sampled, unique)
        return lambda: op(labels, seed, *made, num_sampled=num_sampled)
    op = getattr(sampling_ops, name + "_sample")
    return lambda: op(labels, seed, num_classes, num_sampled, unique)


each_sampler = pytest.mark.parametrize("name", ["uniform", "log_uniform", "table"])
both_ways = pytest.mark.parametrize("unique", [False, True])


@each_sampler
@both_ways
@pytest.mark.parametrize("size", [(1, 1), (10, 4), (10, 10), (5_000, 300), (70_001, 9_001)])
@pytest.mark.parametrize("seed", [(3, 4), (-1, 1 << 40)])
def test_draws_equal_those_of_the_cpu(name, unique, size, seed):
    labels = np.random.default_rng(0).integers(-1, size[0], (7, 5))
    compute = draw(name, labels, seed, *size, unique)
    gpu.assert_same_on_gpu(lambda: compute()[0], exact=True)
    gpu.assert_same_on_gpu(lambda: compute()[1:], rtol=3e-6)


@each_sampler
@both_ways
@pytest.mark.parametrize("label", [-2, 100, 2**40])
def test_expected_counts_of_labels_out_of_range_are_nan(name, unique, label):
    counts = gpu.on_gpu(draw(name, [[1], [label]], [0, 0], 100, 7, unique))[1]
    np.testing.assert_array_equal(np.isnan(counts), [[False], [True]])


def strange_vectors(dim):
    vectors = normal(70, dim)
    for row, value in enumerate([0.0, np.nan, np.inf, -np.inf, 3e38]):
        vectors[row] = value
    vectors[5, dim // 2] = np.nan
    vectors[6:40] *= normal(34, dim, seed=2) > 0  # for borrowing between bins
    return vectors


@pytest.mark.parametrize("kind", ["simhash", "wta", "dwta"])
@pytest.mark.parametrize("dim", [8, 33, 128, 200])
def test_hashes_equal_those_of_the_cpu(kind, dim):
    with tf.device("CPU:0"):
        functions = hash_ops.hash_functions(kind, dim, 4, 21, [1, 2])

    def compute():
        vectors = strange_vectors(dim)
        codes = [hash_ops.lsh_hash(vectors, functions, kind, 4, 21, b) for b in (7, 12)]
        none = hash_ops.lsh_hash(vectors[:0], functions, kind, 4, 21, 9)
        return codes, none

    gpu.assert_same_on_gpu(compute, exact=True)


def test_bfloat16_products_raise_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="compute_dtype 'float32'"):
        product_ops.rounded_product(tf.ones([2, 3]), tf.ones([3, 2]))
