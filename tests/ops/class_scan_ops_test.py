import numpy as np
import pytest
import tensorflow as tf

from tests.ops.class_problem import SHAPES, Problem
from tests.reference import class_scan as reference
from tf_largeout.ops import class_scan_ops


@pytest.fixture
def simd_level(for_all_simd_levels):
    return for_all_simd_levels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_statistics_equal_numpy(simd_level, shape, bias):
    problem = Problem(*shape, bias=bias)
    log_partition, true_logits, ranks = problem.statistics()
    logits = problem.logits
    np.testing.assert_allclose(log_partition, reference.log_partition(logits), rtol=3e-6)
    np.testing.assert_allclose(
        true_logits, reference.true_logits(logits, problem.labels), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(ranks, reference.ranks(logits, problem.labels))


@pytest.mark.parametrize("shape", SHAPES)
def test_ties_go_to_the_lower_id(simd_level, shape):
    problem = Problem(*shape, ties=True)
    _, _, ranks = problem.statistics()
    np.testing.assert_array_equal(ranks, reference.ranks(problem.logits, problem.labels))
    k = min(7, shape[1])
    scores, ids = problem.top_k(k)
    expected_scores, expected_ids = reference.top_k(problem.logits, k)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(ids, expected_ids)


def test_equal_logits_are_ranked_by_id(simd_level):
    problem = Problem(4, 205, 8, 3, ties=True, bias=False)
    problem.variables[0].assign(tf.zeros_like(problem.embeddings))
    ranks = problem.statistics()[2].numpy()
    labelled = problem.labels >= 0
    np.testing.assert_array_equal(ranks[labelled], problem.labels[labelled])


def test_label_logits_are_bit_identical_to_those_of_the_scan(simd_level):
    # Ranks of all classes are a permutation only if the logit of a label and that
    # of the scan are bit-identical.
    problem = Problem(3, 211, 67, 1, seed=4)
    problem.labels = np.tile(np.arange(211), (3, 1))
    ranks = problem.statistics()[2].numpy()
    np.testing.assert_array_equal(np.sort(ranks, -1), problem.labels)


@pytest.mark.parametrize("k", [1, 10, 1001])
def test_top_k_equals_numpy(simd_level, k):
    problem = Problem(65, 1001, 33, 1)
    scores, ids = problem.top_k(k)
    expected = reference.top_k(problem.logits, k)[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    picked = np.take_along_axis(problem.logits, ids.numpy(), 1)
    np.testing.assert_allclose(picked, expected, rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == k for row in ids.numpy())


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
def test_log_partition_neither_overflows_nor_loses_small_terms(simd_level, scale):
    problem = Problem(33, 2000, 8, 1)
    problem.features *= np.float32(scale)
    log_partition = problem.statistics()[0]
    np.testing.assert_allclose(
        log_partition, reference.log_partition(problem.logits), rtol=3e-6, atol=1e-6
    )


def test_the_sum_is_right_for_rising_logits(simd_level):
    num_classes = 200_000  # so many that each shard of the scan has several blocks
    embeddings = np.arange(num_classes, dtype=np.float32)[:, None]
    problem = Problem(2, num_classes, 1, 1)
    problem.variables = [tf.Variable(embeddings), None]
    problem.features = np.array([[1.0], [-1.0]], np.float32)
    expected = reference.log_partition(reference.logits(problem.features, embeddings))
    np.testing.assert_allclose(problem.statistics()[0], expected, rtol=1e-6, atol=1e-6)


def test_nan_of_one_example_changes_no_other_example(simd_level):
    problem = Problem(20, 300, 16, 2)
    expected = problem.statistics()
    problem.features[3] = np.nan
    problem.features[7, 2] = np.inf
    problem.labels[3] = 5
    log_partition, true_logits, ranks = problem.statistics()
    others = [b for b in range(20) if b not in (3, 7)]
    assert np.isnan(log_partition[3])
    np.testing.assert_array_equal(ranks[3], 300)
    for got, want in zip((log_partition, true_logits, ranks), expected, strict=True):
        np.testing.assert_array_equal(got.numpy()[others], want.numpy()[others])


def test_classes_with_logits_of_minus_infinity_or_nan_come_last(simd_level):
    problem = Problem(5, 40, 8, 1)
    problem.bias[:30] = -np.inf
    problem.bias[33] = np.nan
    problem.variables[1].assign(problem.bias)
    ids = problem.top_k(12)[1].numpy()
    np.testing.assert_array_equal(
        np.sort(ids[:, :9]), [[30, 31, 32, 34, 35, 36, 37, 38, 39]] * 5
    )
    np.testing.assert_array_equal(ids[:, 9:], [[0, 1, 2]] * 5)
    problem.labels[:] = 4
    np.testing.assert_array_equal(problem.statistics()[2], [[40]] * 5)


def test_minus_infinity_adds_nothing_to_the_sum(simd_level):
    problem = Problem(5, 40, 8, 1)
    problem.bias[:30] = -np.inf
    problem.variables[1].assign(problem.bias)
    expected = reference.log_partition(problem.logits[:, 30:])
    np.testing.assert_allclose(problem.statistics()[0], expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(20, 300, 16, 9), (65, 1001, 33, 3), (3, 9, 5, 12)])
@pytest.mark.parametrize("ties", [False, True])
def test_sums_over_shards_equal_those_over_all_classes(simd_level, shape, ties):
    problem = Problem(*shape, ties=ties)
    log_partition, true_logits, ranks = problem.statistics()
    shards = problem.shard_statistics(true_logits)
    np.testing.assert_array_equal(sum(shard[2] for shard in shards), ranks)
    partitions = tf.reduce_logsumexp([shard[0] for shard in shards], axis=0)
    np.testing.assert_allclose(partitions, log_partition, rtol=1e-6, atol=1e-6)
    for shard in shards:
        np.testing.assert_array_equal(shard[1], true_logits)


def test_nan_logits_in_any_shard_rank_last(simd_level):
    problem = Problem(20, 300, 16, 9, ties=True)
    problem.embeddings[150:160] = problem.embeddings[40:50]
    problem.bias[[7, 100, 250]] = -np.inf, np.nan, np.inf
    problem.labels[:4, :3] = 7, 100, 250
    problem.labels[4:8, :2] = np.arange(150, 158).reshape(4, 2)
    problem.features[10] = np.nan
    for variable, value in zip(
        problem.variables, (problem.embeddings, problem.bias), strict=True
    ):
        variable.assign(value)
    _, true_logits, ranks = problem.statistics()
    shards = problem.shard_statistics(true_logits)
    np.testing.assert_array_equal(sum(shard[2] for shard in shards), ranks)
    np.testing.assert_array_equal(ranks.numpy()[:4, :3], [[300, 300, 0]] * 4)
    np.testing.assert_array_equal(ranks.numpy()[10], [300] * 9)


def test_gradients_flow_only_to_given_logits(simd_level):
    problem = Problem(5, 11, 3, 2)
    weights, label_weights = np.linspace(0.5, 2, 5), np.linspace(-1, 1, 10).reshape(5, 2)
    sources = [tf.constant(problem.features), tf.ones([5, 2]), *problem.variables]

    def loss_of(features, embeddings, bias):
        logits = reference.logits(features, embeddings, bias)
        return weights @ reference.log_partition(logits)

    with tf.GradientTape() as tape:
        tape.watch(sources[:2])
        log_partition, true_logits, _ = class_scan_ops.class_statistics(
            sources[0], *problem.variables, problem.labels + 4, sources[1], 4
        )
        loss = tf.reduce_sum(weights.astype("f") * log_partition)
        loss += tf.reduce_sum(label_weights.astype("f") * true_logits)
    d_features, d_given, *d_variables = tape.gradient(loss, sources)
    np.testing.assert_allclose(d_given, label_weights, rtol=1e-6)
    values = [np.float64(x) for x in (problem.features, problem.embeddings, problem.bias)]
    for i, gradient in enumerate([d_features, *d_variables]):
        for at in np.ndindex(values[i].shape):
            moved = [[v.copy() for v in values] for _ in range(2)]
            moved[0][i][at] += 1e-4
            moved[1][i][at] -= 1e-4
            slope = (loss_of(*moved[0]) - loss_of(*moved[1])) / 2e-4
            np.testing.assert_allclose(gradient.numpy()[at], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "labels, true_logits, first_class, match",
    [
        ([[1]], None, 3, "first_class must be .*got 3"),
        ([[1]], [[0.5]], -1, "first_class must be .*got -1"),
        ([[-2]], [[0.5]], 0, "labels must be .*got -2"),
        ([[1]], [[0.5, 0.5]], 0, "true_logits must be|must be equal"),
        ([[1]], [[0.5]], [0, 1], "first_class must be a scalar|rank 0"),
    ],
)
def test_given_logits_of_a_wrong_shape_raise_an_error(labels, true_logits, first_class, match):
    problem = Problem(1, 7, 5, 1)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=match):
        class_scan_ops.class_statistics(
            problem.features, *problem.variables, labels, true_logits, first_class
        )


def test_an_empty_batch_gives_empty_outputs():
    problem = Problem(0, 12, 5, 2)
    for statistics in (problem.statistics(), *problem.shard_statistics(tf.zeros([0, 2]))):
        assert [x.shape for x in statistics] == [(0,), (0, 2), (0, 2)]
    assert [x.shape for x in problem.top_k(3)] == [(0, 3), (0, 3)]


def test_the_log_partition_without_labels_equals_numpy():
    problem = Problem(6, 50, 5, 0)
    log_partition, true_logits, _ = problem.statistics()
    np.testing.assert_allclose(
        log_partition, reference.log_partition(problem.logits), rtol=3e-6
    )
    assert true_logits.shape == (6, 0)
    for _, given, ranks in problem.shard_statistics(true_logits):
        assert given.shape == ranks.shape == (6, 0)


@pytest.mark.parametrize("label", [-2, 7, 2**33])
def test_a_label_out_of_range_raises_an_error(label):
    problem = Problem(3, 7, 5, 2)
    problem.labels[1, 1] = label
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"\[0, 7\).*got {label} at example 1"
    ):
        problem.statistics()


@pytest.mark.parametrize("k", [0, 8])
def test_k_out_of_range_raises_an_error(k):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"k must be in \[1, 7\].*got {k}"
    ):
        Problem(3, 7, 5, 2).top_k(k)


def test_mismatched_shapes_raise_an_error():
    problem = Problem(3, 7, 5, 2)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="4"):
        class_scan_ops.class_statistics(np.ones([3, 4], "f"), *problem.handles, problem.labels)
    bias = tf.Variable(tf.zeros(6))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"bias.*\[7\].*\[6\]"):
        class_scan_ops.class_statistics(
            problem.features, problem.variables[0].handle, bias.handle, problem.labels
        )


def test_shapes_are_inferred_in_graphs():
    problem = Problem(3, 7, 5, 2)

    @tf.function(
        input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None, None], tf.int64)]
    )
    def scan(features, labels):
        log_partition, _, ranks = class_scan_ops.class_statistics(
            features, *problem.handles, labels
        )
        scores, _ = class_scan_ops.class_top_k(features, *problem.handles, 4)
        assert log_partition.shape.as_list() == [None]
        assert ranks.shape.as_list() == [None, None]
        assert scores.shape.as_list() == [None, 4]
        return log_partition

    np.testing.assert_allclose(scan(problem.features, problem.labels), problem.statistics()[0])


def test_variables_and_handles_give_equal_results():
    problem = Problem(6, 50, 5, 1)
    ids = class_scan_ops.class_top_k(problem.features, *problem.variables, 5)[1]
    np.testing.assert_array_equal(ids, problem.top_k(5)[1])


def test_a_variable_is_read_in_place_after_a_scatter():
    problem = Problem(6, 50, 5, 1)
    row = tf.IndexedSlices(tf.ones([1, 5]), tf.constant([3]))
    problem.variables[0].scatter_add(row)
    problem.embeddings[3] += 1
    expected = reference.log_partition(problem.logits)
    np.testing.assert_allclose(problem.statistics()[0], expected, rtol=3e-6)
