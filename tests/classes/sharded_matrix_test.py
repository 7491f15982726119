"""Every method of a `RowScorer` of several tables, compared with one table and NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import class_scan as reference
from tests.slow import slow_but
from tf_largeout.classes.class_scorer import ClassMatrix, RowScorer
from tf_largeout.classes.filtered_top_k import exact_top_k
from tf_largeout.classes.row_sources import RowSource, tables_of
from tf_largeout.variables import class_rows

pytestmark = pytest.mark.portable

N, DIM, BATCH = 23, 6, 9
EACH_COUNT = pytest.mark.parametrize("num_shards", slow_but([1, 3, 7], [1, 2, 3, 7, N]))
EACH_BIAS = pytest.mark.parametrize("has_bias", [True, False])


class Problem:
    """One matrix and a sharded one; small integers give ties across shards."""

    def __init__(self, num_shards, has_bias=True, ties=False):
        rng = np.random.default_rng(5)

        def draw(*shape):
            values = rng.integers(-1, 2, shape) if ties else rng.normal(size=shape)
            return values.astype("float32")

        self.embeddings, self.bias = draw(N, DIM), draw(N) if has_bias else None
        self.features = tf.constant(draw(BATCH, DIM))
        self.labels = tf.constant(rng.integers(-1, N, (BATCH, 3)))
        spans = [slice(*one) for one in class_rows.bounds(N, num_shards)]
        self.rows = [keras.Variable(self.embeddings[span]) for span in spans]
        self.biases = [keras.Variable(self.bias[s]) for s in spans] if has_bias else None
        self.sharded = RowScorer(RowSource(tables_of(self.rows, self.biases, "layer")))
        self.variables = [
            keras.Variable(self.embeddings),
            keras.Variable(self.bias) if has_bias else None,
        ]
        self.one = ClassMatrix(*self.variables, "layer")

    @property
    def logits(self):
        return reference.logits(self.features.numpy(), self.embeddings, self.bias)

    def assert_equal(self, ask):
        for one, other in zip(
            tf.nest.flatten(ask(self.one)), tf.nest.flatten(ask(self.sharded)), strict=True
        ):
            np.testing.assert_array_equal(one, other)


@EACH_COUNT
@EACH_BIAS
def test_rows_dots_and_logits_equal_those_of_one_matrix(num_shards, has_bias):
    problem = Problem(num_shards, has_bias)
    ids = tf.constant([[22, 0, 3], [3, 11, 11]], tf.int64)
    problem.assert_equal(lambda matrix: matrix.rows(ids))
    problem.assert_equal(lambda matrix: matrix.values())
    problem.assert_equal(lambda matrix: matrix.dots(problem.features, problem.labels))
    problem.assert_equal(
        lambda matrix: matrix.dots_and_rows(problem.features, problem.labels, ids[1])
    )
    logits = problem.sharded.logits(problem.features[:, tf.newaxis])
    np.testing.assert_allclose(logits[:, 0], problem.logits, rtol=1e-5, atol=1e-5)
    rows, bias = problem.sharded.as_products()
    np.testing.assert_array_equal(rows, problem.embeddings)
    assert (bias is None) == (not has_bias)


@EACH_COUNT
@EACH_BIAS
@pytest.mark.parametrize("ties", [False, True])
def test_statistics_and_best_classes_equal_those_of_one_matrix(num_shards, has_bias, ties):
    problem = Problem(num_shards, has_bias, ties)
    expected = problem.one.statistics(problem.features, problem.labels)
    for training in (False, True):
        found = problem.sharded.statistics(problem.features, problem.labels, training=training)
        np.testing.assert_array_equal(found.true_logits, expected.true_logits)
        np.testing.assert_array_equal(found.ranks, expected.ranks)
        np.testing.assert_allclose(
            found.log_partition, reference.log_partition(problem.logits), rtol=1e-5
        )
    for k in (1, 4, N, tf.constant(5)):
        problem.assert_equal(lambda matrix, k=k: matrix.top_k(problem.features, k))


def assert_best_up_to_rounding(scores, ids, exact, error):
    """`exact` and `error` are `[batch, N]`: scores in float64, and bounds of their rounding."""
    scores, ids = scores.numpy(), ids.numpy()
    found, bounds = (np.take_along_axis(each, ids, 1) for each in (exact, error))
    assert np.all(np.abs(scores - found) <= bounds)
    best = -np.sort(-exact, axis=1)[:, : ids.shape[1]]
    assert np.all(found >= best - 2 * error.max(axis=1, keepdims=True))
    assert all(len(set(row)) == len(row) for row in ids)


@EACH_COUNT
@EACH_BIAS
@pytest.mark.parametrize("ties", [False, True])
def test_best_absolute_and_allowed_classes_equal_those_of_one_matrix_up_to_rounding(
    num_shards, has_bias, ties
):
    """`tf.matmul` gives these scores: its last bits depend on how many classes it is given."""
    problem = Problem(num_shards, has_bias, ties)
    # A sum of DIM products and a bias, in any order, rounds each term at most DIM + 1 times.
    sizes = np.abs(problem.embeddings), np.abs(problem.bias) if has_bias else None
    error = (DIM + 2) * 2.0**-24 * reference.logits(np.abs(problem.features), *sizes)
    allowed = np.arange(0, N, 2)
    for absolute, filters in (
        (True, {}),
        (False, {"allowed": allowed}),
        (True, {"allowed": allowed}),
    ):
        exact = np.abs(problem.logits) if absolute else problem.logits
        if filters:
            exact = np.where(np.isin(range(N), allowed), exact, -np.inf)

        def best(matrix, absolute=absolute, filters=filters):
            scorer = matrix.with_form(rank_by="absolute") if absolute else matrix
            return exact_top_k(scorer, problem.features, 8, **filters)

        assert_best_up_to_rounding(*best(problem.sharded), exact, error)
        if ties:  # Sums of integers are exact.
            problem.assert_equal(best)


@EACH_COUNT
def test_filters_leave_the_best_of_the_others(num_shards):
    problem = Problem(num_shards, ties=True)
    allowed = [22, 1, 2, 9, 10, 11, 12]
    for filters in (
        {"exclude": problem.labels},
        {"allowed": allowed},
        {"exclude": problem.labels, "allowed": allowed},
        {"allowed": np.zeros([0], int)},
    ):
        problem.assert_equal(
            lambda matrix, f=filters: exact_top_k(matrix, problem.features, 5, **f)
        )


@EACH_COUNT
def test_a_fold_visits_all_classes_with_their_ids(num_shards):
    problem = Problem(num_shards)

    def add(total, logits, ids):
        return total + tf.reduce_sum(logits * tf.cast(ids, tf.float32), axis=1)

    found = problem.sharded.fold_logits(problem.features, add, tf.zeros([BATCH]))
    np.testing.assert_allclose(found, problem.logits @ np.arange(N), rtol=1e-4, atol=1e-4)
    labels, features = problem.labels, problem.features
    statistics = problem.sharded.with_form(rank_by="absolute").statistics(features, labels)
    expected = reference.log_partition(np.abs(problem.logits))
    np.testing.assert_allclose(statistics.log_partition, expected, rtol=1e-5)
    problem.assert_equal(
        lambda matrix: matrix.with_form(rank_by="absolute").statistics(features, labels).ranks
    )


@EACH_COUNT
@EACH_BIAS
def test_gradients_equal_those_of_one_matrix(num_shards, has_bias):
    """Bit-identical for one label per example and shared classes with repeats."""
    problem = Problem(num_shards, has_bias)
    labels, shared = problem.labels[:, :1], tf.constant([4, 22, 0, 4, 15], tf.int64)

    def gradients(matrix, variables):
        with tf.GradientTape() as tape:
            tape.watch(problem.features)
            own, rows, biases = matrix.dots_and_rows(problem.features, labels, shared)
            products = tf.matmul(problem.features, rows, transpose_b=True) + biases
            loss = tf.reduce_sum(tf.where(labels >= 0, own, 0) ** 2) + tf.norm(products)
        sources = [problem.features, *(variable.value for variable in variables)]
        return [tf.convert_to_tensor(one) for one in tape.gradient(loss, sources)]

    expected = gradients(problem.one, [one for one in problem.variables if one is not None])
    variables = [*problem.rows, *(problem.biases or [])]
    features, *parts = gradients(problem.sharded, variables)
    np.testing.assert_array_equal(features, expected[0])
    np.testing.assert_array_equal(np.concatenate(parts[:num_shards]), expected[1])
    if has_bias:
        np.testing.assert_array_equal(np.concatenate(parts[num_shards:]), expected[2])


@EACH_COUNT
@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_the_exact_loss_equal_those_of_one_matrix(num_shards, training):
    problem = Problem(num_shards)

    def gradients(matrix, variables):
        with tf.GradientTape() as tape:
            tape.watch(problem.features)
            found = matrix.statistics(problem.features, problem.labels, training=training)
            loss = tf.reduce_sum(found.log_partition) - tf.reduce_sum(found.true_logits)
        return tape.gradient(loss, [problem.features, *(one.value for one in variables)])

    expected = gradients(problem.one, problem.variables)
    features, *parts = gradients(problem.sharded, problem.rows + problem.biases)
    np.testing.assert_allclose(features, expected[0], rtol=1e-5, atol=1e-6)
    for found, whole in zip(
        (parts[:num_shards], parts[num_shards:]), expected[1:], strict=True
    ):
        np.testing.assert_allclose(np.concatenate(found), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [-2, N, 2**40])
def test_the_error_of_ids_out_of_range_names_them(wrong):
    problem = Problem(3)
    ids = tf.constant([[wrong]] * BATCH, tf.int64)
    for ask in (
        lambda: problem.sharded.dots(problem.features, ids),
        lambda: problem.sharded.dots_and_rows(problem.features, problem.labels, ids[0]),
        lambda: problem.sharded.statistics(problem.features, ids),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(wrong)):
            ask()


def test_rows_with_nan_rank_last_as_in_one_matrix():
    problem = Problem(3)
    rows = problem.embeddings
    rows[3], rows[12], rows[20] = np.nan, -np.inf, np.inf
    problem.variables[0].assign(rows)
    for variable, (first, end) in zip(problem.rows, class_rows.bounds(N, 3), strict=True):
        variable.assign(rows[first:end])
    positive = tf.abs(problem.features)
    problem.assert_equal(lambda matrix: matrix.top_k(positive, N - 3)[1])
    problem.assert_equal(lambda matrix: matrix.statistics(positive, problem.labels).ranks)
