import functools
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import kernel_tree as reference
from tf_largeout.papers.kernel_tree import kernel_tree_ops
from tf_largeout.papers.kernel_tree.kernel_tree_ops import Projection, kernel_tree_shape

SEED = tf.constant([3, 4], tf.int64)
NO_LABELS = tf.zeros([5, 0], tf.int64)


class Problem:
    """Classes and queries, and the variables of a tree."""

    def __init__(self, num_classes=200, dim=7, batch=5, leaf_size=6, bias=True, projected=None):
        random = np.random.default_rng(0)
        self.random, self.leaf_size, self.alpha = random, leaf_size, 2.0

        def normal(*shape):
            return tf.Variable(random.normal(size=shape).astype("f4"))

        self.embeddings, self.features = normal(num_classes, dim), normal(batch, dim)
        self.bias = normal(num_classes) if bias else None
        dim += bias
        self.projection = None
        if projected:
            rows = tf.Variable(tf.zeros([num_classes, projected]))
            self.projection = Projection(normal(projected, dim), rows)
            dim = projected
        self.sums = tf.Variable(tf.zeros(kernel_tree_shape(num_classes, dim, leaf_size)))

    def state(self):
        return self.embeddings, self.bias, self.sums, self.leaf_size, self.projection

    def build(self):
        kernel_tree_ops.kernel_tree_build(*self.state())
        return self

    def update(self, ids):
        return int(
            kernel_tree_ops.kernel_tree_update(tf.constant(ids, tf.int64), *self.state())
        )

    def sample(self, num_sampled=4, labels=NO_LABELS, seed=SEED, shared=False):
        rows, bias, features = self.embeddings, self.bias, tf.convert_to_tensor(self.features)
        if self.projection:
            rows, bias, features = self.projection.rows, None, self.projected_features()
        tree = (rows, bias, self.sums, self.leaf_size)
        return kernel_tree_ops.kernel_tree_sample(
            features, labels, seed, *tree, num_sampled, self.alpha, shared
        )

    def projected_features(self):
        features = tf.convert_to_tensor(self.features)
        if self.bias is not None:
            features = tf.concat([features, tf.ones([len(features), 1])], axis=1)
        return tf.matmul(features, self.projection.matrix, transpose_b=True)

    def q(self):
        projection = self.projection and self.projection.matrix.numpy()
        bias = None if self.bias is None else self.bias.numpy()
        rows = self.embeddings.numpy()
        return reference.probabilities(
            self.features.numpy(), rows, bias, self.alpha, projection
        )


each_form = pytest.mark.parametrize(
    "form", [{}, {"bias": False}, {"projected": 3}, {"projected": 3, "bias": False}], ids=str
)


@pytest.mark.parametrize("num_classes", [1, 5, 6, 25, 97])
@each_form
def test_sums_equal_those_over_the_classes_of_each_node(num_classes, form):
    problem = Problem(num_classes, **form).build()
    rows = reference.extended(problem.embeddings, problem.bias)
    if problem.projection:
        rows = rows @ problem.projection.matrix.numpy().astype("f8").T
        np.testing.assert_allclose(problem.projection.rows, rows, rtol=1e-4, atol=1e-5)
    expected = reference.sums(rows, problem.leaf_size)
    pairs = np.tril_indices(rows.shape[1])
    sums = problem.sums.numpy()
    assert len(sums) == len(expected)
    np.testing.assert_allclose(
        sums[:, : len(pairs[0])], expected[:, pairs[0], pairs[1]], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(sums[:, len(pairs[0]) :], 0)


@each_form
def test_draws_follow_the_kernel_and_have_its_log_q(form, for_all_simd_levels):
    problem = Problem(**form).build()
    labels = np.array([[0, -1], [199, 5], [3, 3], [-1, -1], [77, 198]])
    ids, log_q, label_log_q = (x.numpy() for x in problem.sample(20_000, labels))
    q = problem.q()
    for row in range(5):
        counts = np.bincount(ids[row], minlength=200)
        assert abs(reference.chi_square_deviation(counts, q[row])) < 5
    rows = np.arange(5)[:, np.newaxis]
    np.testing.assert_allclose(np.exp(log_q, dtype="f8"), q[rows, ids], rtol=1e-4)
    expected = np.where(labels >= 0, q[rows, labels], 1)
    np.testing.assert_allclose(np.exp(label_log_q, dtype="f8"), expected, rtol=1e-4)


@each_form
def test_rows_in_bfloat16_give_the_bits_of_equal_float32_rows(form, for_all_simd_levels):
    results, dim = [], 40
    for dtype in (tf.bfloat16, tf.float32):
        problem = Problem(dim=dim, **form)
        rounded = tf.cast(problem.embeddings, tf.bfloat16)
        problem.embeddings = tf.Variable(tf.cast(rounded, dtype))
        problem.build()
        found = [problem.sums.numpy(), *problem.sample(30, np.full([5, 1], 3))]
        ids = [5, 6, 190, -1]
        problem.embeddings.scatter_update(
            tf.IndexedSlices(tf.cast(rounded, dtype)[:3], ids[:3])
        )
        found += [problem.update(ids), problem.sums.numpy(), *problem.sample(30, shared=True)]
        results.append(found)
        problem.embeddings.scatter_update(
            tf.IndexedSlices(tf.fill([1, dim], tf.constant(np.inf, dtype)), [77])
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="class 77 violates"):
            problem.build()
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_pool_follows_the_mixture_over_the_examples():
    problem = Problem().build()
    ids, log_q, _ = problem.sample(50_000, shared=True)
    counts = np.bincount(ids, minlength=200)
    assert abs(reference.chi_square_deviation(counts, problem.q().mean(axis=0))) < 5
    rows = np.repeat(range(5), 10_000)
    np.testing.assert_allclose(np.exp(log_q, dtype="f8"), problem.q()[rows, ids], rtol=1e-4)


@each_form
def test_an_updated_tree_is_bit_identical_to_a_new_one(form):
    problem = Problem(**form).build()
    for _ in range(20):
        ids = problem.random.integers(200, size=7)
        rows = problem.random.normal(size=[7, 7]).astype("f4")
        problem.embeddings.scatter_update(tf.IndexedSlices(rows, ids))
        touched = len(set(ids // problem.leaf_size))
        assert problem.update([*ids, -1, ids[0]]) == touched
        assert problem.update(ids) == 0
    updated = problem.sums.numpy()
    problem.sums.assign(tf.fill(problem.sums.shape, np.nan))
    np.testing.assert_array_equal(problem.build().sums, updated)


def test_log_q_matches_the_draws_if_sums_are_out_of_date():
    problem = Problem().build()
    problem.embeddings.assign(problem.embeddings[::-1])  # The tree is not notified.
    labels = np.tile(np.arange(200), [5, 1])
    ids, _, log_q = (x.numpy() for x in problem.sample(20_000, labels))
    q = np.exp(log_q, dtype="f8")
    np.testing.assert_allclose(q.sum(axis=1), 1, rtol=1e-5)
    for row in range(5):
        counts = np.bincount(ids[row], minlength=200)
        assert abs(reference.chi_square_deviation(counts, q[row] / q[row].sum())) < 5


def test_rows_of_width_0_are_drawn_uniformly():
    ids, log_q, _ = Problem(dim=0, bias=False).build().sample(100)
    assert np.all((ids >= 0) & (ids < 200))
    np.testing.assert_allclose(log_q, -np.log(200.0), rtol=1e-5)


def test_equal_seeds_give_equal_draws():
    problem = Problem().build()
    again, other = problem.sample(50)[0], problem.sample(50, seed=SEED + 1)[0]
    np.testing.assert_array_equal(problem.sample(50)[0], again)
    assert np.mean(other.numpy() == again.numpy()) < 0.2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e19])
def test_rows_that_cannot_be_summed_raise_an_error_and_change_nothing(bad):
    problem = Problem().build()
    before = problem.sums.numpy()
    problem.embeddings[151, 2].assign(bad)
    for function in (problem.build, lambda: problem.update([0, 151])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="class 151"):
            function()
        np.testing.assert_array_equal(problem.sums, before)
    assert problem.update([0]) == 0  # not of its leaf


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e30])
def test_features_without_probability_mass_raise_an_error(bad):
    problem = Problem().build()
    problem.features[3, 1].assign(bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match="example 3"):
        problem.sample()


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e30, 0.0])
def test_damaged_sums_give_valid_draws_or_an_error(value):
    problem = Problem().build()
    problem.sums.assign(tf.fill(problem.sums.shape, value))
    if np.isfinite(value):
        ids, log_q, _ = problem.sample(100)
        assert ids.numpy().min() >= 0 and ids.numpy().max() < 200
        assert np.all(np.isfinite(log_q))
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="sums of the tree"):
            problem.sample(100)


def test_concurrent_updates_and_draws_do_not_deadlock():
    for rows_are_first in (True, False):  # Usually also in memory.
        problem = Problem(3000, projected=8)
        if not rows_are_first:
            rows = tf.Variable(problem.projection.rows)
            problem.projection = problem.projection._replace(rows=rows)
        problem.build()
        update = functools.partial(problem.update, range(3000))
        sample = functools.partial(problem.sample, 500)
        works = [update, update, sample, sample, sample]
        threads = [threading.Thread(target=_repeat, args=[work], daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive()


def _repeat(work):
    for _ in range(100):
        work()


def _invalid(match):
    return pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=match)


@pytest.mark.parametrize("bad", [-2, 200])
def test_ids_out_of_range_raise_an_error(bad):
    problem = Problem().build()
    with _invalid("ids must be class ids"):
        problem.update([0, bad])
    with _invalid("labels must be class ids"):
        problem.sample(labels=np.array([[1], [2], [bad], [3], [4]]))


@pytest.mark.parametrize("alpha", [0, -1, np.nan, np.inf])
def test_an_alpha_that_is_not_positive_raises_an_error(alpha):
    problem = Problem().build()
    problem.alpha = float(alpha)
    with _invalid("alpha must be"):
        problem.sample()


def test_wrong_shapes_raise_an_error():
    problem = Problem(projected=3).build()
    with _invalid("at least minimum"):
        problem.sample(0)
    with _invalid("labels must be"):
        problem.sample(labels=tf.zeros([4, 1], tf.int64))
    problem.leaf_size = 7
    with _invalid("sums must be float of shape"):
        problem.build()
    problem = Problem(projected=3)
    problem.projection = problem.projection._replace(matrix=tf.Variable(tf.ones([3, 7])))
    with _invalid("projection must be a float variable"):
        problem.build()
    problem.projection = problem.projection._replace(rows=problem.sums)
    with _invalid("are the same variable"):
        problem.build()
    problem = Problem(batch=1).build()
    problem.features = problem.features[:0]
    with _invalid("at least one example"):
        problem.sample(labels=tf.zeros([0, 0], tf.int64), shared=True)
    assert problem.sample(labels=tf.zeros([0, 2], tf.int64))[0].shape == (0, 4)


def test_shapes_are_inferred_in_graphs():
    problem = Problem()

    @tf.function(input_signature=[tf.TensorSpec([None, 7]), tf.TensorSpec([None, 2], tf.int64)])
    def shapes(features, labels):
        tree = (problem.embeddings, problem.bias, problem.sums, problem.leaf_size)
        own = kernel_tree_ops.kernel_tree_sample(features, labels, SEED, *tree, 4, 1.0)
        pool = kernel_tree_ops.kernel_tree_sample(
            features, labels, SEED, *tree, 4, 1.0, shared=True
        )
        assert own[0].shape[1] == 4 and own[2].shape[1] == 2 and pool[1].shape == (4,)
        return own[0]

    assert shapes(problem.features, tf.zeros([5, 2], tf.int64)).shape == (5, 4)
