import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import low_precision
from tests.reference import row_dots as reference
from tests.slow import slow_but
from tf_largeout.ops import row_dot_ops

N = 40
# (batch, dim, ids per example): not multiples of a block size, and small ones. In the last
# one, each class occurs more than 64 times, as gradients are summed in runs of 64.
SHAPES = [
    (1, 1, 1),
    (5, 37, 13),
    (9, 128, 64),
    (70, 200, 3),
    (3, 16, 0),
    (0, 4, 3),
    (600, 5, 6),
]
each_shape = pytest.mark.parametrize("batch, dim, num_ids", SHAPES)


class Problem:
    """Random features, classes, and ids with repeats and padding."""

    def __init__(self, batch, dim, num_ids, num_shared=0):
        rng = np.random.default_rng(dim)
        self.features = tf.constant(rng.normal(size=(batch, dim)), tf.float32)
        self.embeddings = tf.Variable(rng.normal(size=(N, dim)).astype("float32"))
        self.bias = tf.Variable(rng.normal(size=N).astype("float32"))
        self.ids = rng.integers(-1, N, (batch, num_ids))
        self.shared_ids = rng.integers(0, N, num_shared)
        self.weights = rng.normal(size=(batch, num_ids)).astype("float32")
        self.row_weights = rng.normal(size=(num_shared, dim)).astype("float32")
        self.bias_weights = rng.normal(size=num_shared).astype("float32")

    @property
    def sources(self):
        return [self.features, self.embeddings, self.bias]

    def dots(self, **kwargs):
        return row_dot_ops.row_dots(
            self.features, self.embeddings, self.ids, self.bias, **kwargs
        )

    def loss(self):
        logits, rows, biases = row_dot_ops.row_dots_and_rows(
            self.features, self.embeddings, self.bias, self.ids, self.shared_ids
        )
        return (
            tf.reduce_sum(tf.where(self.ids >= 0, logits, 0) * self.weights)
            + tf.reduce_sum(rows * self.row_weights)
            + tf.reduce_sum(biases * self.bias_weights)
        )

    def gradients(self):
        with tf.GradientTape() as tape:
            tape.watch(self.features)
            loss = self.loss()
        return tape.gradient(loss, self.sources)

    def expected_gradients(self):
        by_features, by_embeddings, by_bias = reference.gradients(
            self.features.numpy(), self.embeddings.numpy(), self.ids, self.weights
        )
        np.add.at(by_embeddings, self.shared_ids, self.row_weights)
        np.add.at(by_bias, self.shared_ids, self.bias_weights)
        return by_features, by_embeddings, by_bias


@pytest.mark.usefixtures("for_all_simd_levels")
@each_shape
def test_logits_equal_those_of_the_classes_of_each_example(batch, dim, num_ids):
    problem = Problem(batch, dim, num_ids)
    expected = reference.logits(*(tensor.numpy() for tensor in problem.sources), problem.ids)
    np.testing.assert_allclose(problem.dots(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("for_all_simd_levels")
@each_shape
@pytest.mark.parametrize(
    "num_shared, in_graph",
    slow_but([(0, False), (7, True)], itertools.product([0, 7, 50], [False, True])),
)
def test_gradients_have_one_slice_per_distinct_class(batch, dim, num_ids, num_shared, in_graph):
    problem = Problem(batch, dim, num_ids, num_shared)
    compute = tf.function(problem.gradients) if in_graph else problem.gradients
    by_features, by_embeddings, by_bias = compute()
    distinct = np.unique([*problem.ids[problem.ids >= 0], *problem.shared_ids])
    for slices in (by_embeddings, by_bias):
        np.testing.assert_array_equal(slices.indices, distinct)
        assert slices.dense_shape.shape == slices.values.shape.rank
    actual = [by_features, *(tf.convert_to_tensor(g) for g in (by_embeddings, by_bias))]
    for one, other in zip(actual, problem.expected_gradients(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_gradients_agree_with_finite_differences():
    problem = Problem(3, 4, 5)
    problem.ids[0, :2] = [-1, 7]

    def dots(features, embeddings, bias):
        problem.embeddings.assign(embeddings)
        problem.bias.assign(bias)
        logits = row_dot_ops.row_dots(features, problem.embeddings, problem.ids, problem.bias)
        return tf.where(problem.ids >= 0, logits, 0)

    arguments = [tf.convert_to_tensor(source) for source in problem.sources]
    _, numeric = tf.test.compute_gradient(dots, arguments, delta=1e-2)
    weights = np.ones(problem.ids.shape)
    expected = reference.gradients(
        arguments[0].numpy(), arguments[1].numpy(), problem.ids, weights
    )
    for jacobian, gradient in zip(numeric, expected, strict=True):
        np.testing.assert_allclose(jacobian.sum(axis=0), gradient.reshape(-1), atol=1e-2)


def test_rows_and_biases_of_shared_classes_are_gathered():
    problem = Problem(4, 8, 2, num_shared=9)
    _, rows, biases = row_dot_ops.row_dots_and_rows(
        problem.features, problem.embeddings, problem.bias, problem.ids, problem.shared_ids
    )
    np.testing.assert_array_equal(rows, problem.embeddings.numpy()[problem.shared_ids])
    np.testing.assert_array_equal(biases, problem.bias.numpy()[problem.shared_ids])


def test_logits_without_a_bias_are_inner_products():
    problem = Problem(5, 12, 6)
    features, embeddings, _ = (tensor.numpy() for tensor in problem.sources)
    expected = reference.logits(features, embeddings, np.zeros(N), problem.ids)
    actual = row_dot_ops.row_dots(features, problem.embeddings.handle, problem.ids)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_low_precision_features_are_summed_in_float32(dtype):
    problem = Problem(5, 12, 6)
    features = tf.cast(problem.features, dtype)
    with tf.GradientTape() as tape:
        tape.watch(features)
        actual = row_dot_ops.row_dots(features, problem.embeddings, problem.ids, problem.bias)
        loss = tf.reduce_sum(tf.where(problem.ids >= 0, actual, 0))
    exact = tf.cast(features, tf.float32).numpy()
    expected = reference.logits(
        exact, problem.embeddings.numpy(), problem.bias.numpy(), problem.ids
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    gradient = tape.gradient(loss, features)
    assert gradient.dtype == dtype
    by_features, _, _ = reference.gradients(
        exact, problem.embeddings.numpy(), problem.ids, np.ones(problem.ids.shape)
    )
    rounded_once = tf.cast(by_features, dtype)
    low_precision.assert_within_twice_the_naive_error(gradient, rounded_once, by_features)


def test_a_variable_is_read_in_place_after_a_scatter():
    problem = Problem(5, 12, 6)
    problem.embeddings.scatter_update(tf.IndexedSlices(tf.ones([1, 12]), [3]))
    expected = reference.logits(*(tensor.numpy() for tensor in problem.sources), problem.ids)
    np.testing.assert_allclose(problem.dots(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [-2, N, 2**40])
@pytest.mark.parametrize("where", ["ids", "shared_ids"])
def test_ids_out_of_range_raise_an_error(bad, where):
    problem = Problem(4, 8, 3, num_shared=3)
    getattr(problem, where).reshape(-1)[1] = bad
    match = (
        rf"{where} must be class ids in \[0, {N}\).*got {bad} at (example 0, column|position) 1"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        problem.loss()


def test_missing_shared_classes_raise_an_error():
    problem = Problem(4, 8, 3, num_shared=3)
    problem.shared_ids[0] = -1
    with pytest.raises(tf.errors.InvalidArgumentError, match="shared_ids.*got -1"):
        problem.loss()


def test_mismatched_shapes_raise_an_error():
    problem = Problem(4, 8, 3)
    embeddings, ids = problem.embeddings, problem.ids
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"batch 4.*\[3,3\]"):
        row_dot_ops.row_dots(problem.features, embeddings, ids[:3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dim 8.*\[4,5\]"):
        row_dot_ops.row_dots(problem.features[:, :5], embeddings, ids)


def test_shapes_are_inferred_in_graphs():
    problem = Problem(4, 8, 3)

    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 3], tf.int64)])
    def dots(features, ids):
        logits, rows, biases = row_dot_ops.row_dots_and_rows(
            features, problem.embeddings, problem.bias, ids, tf.range(5, dtype=tf.int64)
        )
        assert logits.shape.as_list() == [None, 3]
        assert rows.shape.as_list() == [5, 8]
        assert biases.shape.as_list() == [5]
        return logits

    assert dots(problem.features, problem.ids).shape == (4, 3)
