import numpy as np
import pytest
import tensorflow as tf

from tests.reference.embedding_bag import embedding_bag
from tf_largeout.ops import bag_ops

N = 40
# (batch, dim, ids per bag): not multiples of a block size, and small ones.
SHAPES = [(1, 1, 1), (5, 37, 13), (9, 128, 64), (70, 200, 3), (3, 16, 0), (0, 4, 3)]
each_shape = pytest.mark.parametrize("batch, dim, num_ids", SHAPES)


class Problem:
    """A random table, and bags with repeated ids and padding."""

    def __init__(self, batch, dim, num_ids):
        rng = np.random.default_rng(dim)
        self.table = tf.Variable(rng.normal(size=(N, dim)).astype("float32"))
        self.ids = rng.integers(-1, N, (batch, num_ids))
        self.weights = tf.constant(rng.normal(size=(batch, num_ids)), tf.float32)
        self.d_sums = rng.normal(size=(batch, dim)).astype("float32")

    def gradients(self, **options):
        with tf.GradientTape() as tape:
            tape.watch(self.weights)
            sums = bag_ops.bag_sums(self.table, self.ids, self.weights, **options)
            loss = tf.reduce_sum(sums * self.d_sums)
        return tape.gradient(loss, [self.table, self.weights])

    def expected_gradients(self):
        """Computes the gradients one id at a time, in float64."""
        table, weights = self.table.numpy(), self.weights.numpy()
        of_table, of_weights = np.zeros(table.shape), np.zeros(weights.shape)
        for b, i in np.argwhere(self.ids >= 0):
            of_table[self.ids[b, i]] += np.float64(weights[b, i]) * self.d_sums[b]
            of_weights[b, i] = np.float64(table[self.ids[b, i]]) @ self.d_sums[b]
        return of_table, of_weights


@pytest.mark.usefixtures("for_all_simd_levels")
@each_shape
def test_sums_equal_those_of_a_loop(batch, dim, num_ids):
    problem = Problem(batch, dim, num_ids)
    present = problem.ids >= 0
    bags = [list(ids[row]) for ids, row in zip(problem.ids, present, strict=True)]
    weights = [list(w[row]) for w, row in zip(problem.weights.numpy(), present, strict=True)]
    sums = bag_ops.bag_sums(problem.table, problem.ids, problem.weights)
    expected = embedding_bag(bags, weights, problem.table.numpy(), "sum").reshape(batch, dim)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("for_all_simd_levels")
@each_shape
@pytest.mark.parametrize("in_graph", [False, True])
def test_gradients_have_one_slice_per_distinct_id(batch, dim, num_ids, in_graph):
    problem = Problem(batch, dim, num_ids)
    compute = tf.function(problem.gradients) if in_graph else problem.gradients
    of_table, of_weights = compute()
    distinct = np.unique(problem.ids[problem.ids >= 0])
    np.testing.assert_array_equal(of_table.indices, distinct)
    actual = [tf.convert_to_tensor(of_table), of_weights]
    for one, other in zip(actual, problem.expected_gradients(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_weights_without_a_gradient_have_none():
    of_table, of_weights = Problem(5, 8, 3).gradients(differentiate_weights=False)
    assert of_table is not None and of_weights is None


@pytest.mark.parametrize("wrong", [-2, N, 2**40])
def test_an_id_out_of_range_raises_an_error(wrong):
    problem = Problem(5, 8, 3)
    problem.ids[1, 2] = wrong
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"ids.*{wrong}.*example 1, column 2"
    ):
        bag_ops.bag_sums(problem.table, problem.ids, problem.weights)


def test_weights_of_another_shape_raise_an_error():
    problem = Problem(5, 8, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights|[Dd]imension"):
        bag_ops.bag_sums(problem.table, problem.ids, problem.weights[:, :2])


def test_a_table_that_is_not_a_float_matrix_raises_an_error():
    for table in (tf.Variable([1.0, 2.0]), tf.Variable([[1, 2]])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="embeddings must be"):
            bag_ops.bag_sums(table, [[0]], [[1.0]])
