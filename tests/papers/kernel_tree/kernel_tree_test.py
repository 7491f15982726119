"""`KernelTree` of a variable, without a layer or sampler."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import kernel_tree as reference
from tests.search.rows import BIAS, DIM, NUM_ROWS, QUERIES, ROWS, add_weight, kept_weights
from tests.slow import slow_but
from tf_largeout.classes.row_sources import unit_length
from tf_largeout.papers.kernel_tree.kernel_tree import KernelTree

pytestmark = pytest.mark.portable

SEED = tf.constant([5, 0], tf.int64)
IDS = np.arange(NUM_ROWS)


class Tree:
    """A tree of the rows, and its weights by name."""

    def __init__(self, has_bias=True, scales=False, **kwargs):
        self.random, self.scales = np.random.default_rng(0), scales
        self.embeddings = tf.Variable(ROWS)
        self.bias = tf.Variable(BIAS) if has_bias else None
        self.tree, weights = KernelTree(**kwargs, as_read=unit_length if scales else None), []
        self.tree.build(NUM_ROWS, DIM, has_bias, kept_weights(weights))
        self.weights = {weight.name: weight for weight in weights}
        self.step = tf.function(self.keep_up, autograph=False)

    def keep_up(self):
        self.tree.keep_up(SEED, self.embeddings, self.bias)

    def change(self, ids, told=True):
        rows = self.random.normal(size=[len(ids), DIM]).astype("f4")
        self.embeddings.scatter_update(tf.IndexedSlices(rows, ids))
        if told:
            self.tree.rows_changed(tf.constant(ids, tf.int64))

    def sample(self, num_sampled, labels=IDS):
        labels = np.tile(labels, [len(QUERIES), 1])
        variables = self.embeddings, self.bias
        sampled = self.tree.sample(QUERIES, labels, SEED, num_sampled, *variables)
        return [tensor.numpy() for tensor in sampled]

    def q(self):
        projection = self.weights.get("projection")
        projection = None if projection is None else projection.numpy()
        bias = None if self.bias is None else self.bias.numpy()
        rows = self.embeddings.numpy()
        rows = reference.scaled(rows) if self.scales else rows
        return reference.probabilities(QUERIES, rows, bias, self.tree.alpha, projection)

    def is_fresh(self):
        before = self.weights["sums"].numpy()
        self.tree.rebuild(SEED, self.embeddings, self.bias)
        return np.array_equal(before, self.weights["sums"].numpy())


FORMS = [
    {},
    {"has_bias": False, "leaf_size": 9},
    {"projection_dim": 5, "alpha": 3.0},
    {"scales": True},
    {"scales": True, "has_bias": False, "projection_dim": 5},
    {"scales": True, "projection_dim": 5},
]
each_form = pytest.mark.parametrize(
    "form",
    slow_but([FORMS[2], FORMS[5]], FORMS),
    ids=str,
)


@each_form
def test_log_q_and_probabilities_equal_those_of_the_kernel(form):
    tree = Tree(**form)
    tree.step()
    ids, log_q, label_log_q = tree.sample(50)
    q = tree.q()
    rows = np.arange(len(QUERIES))[:, np.newaxis]
    np.testing.assert_allclose(np.exp(log_q, dtype="f8"), q[rows, ids], rtol=1e-4)
    np.testing.assert_allclose(np.exp(label_log_q, dtype="f8"), q, rtol=1e-4)
    kernels = tree.tree.kernels(QUERIES, IDS, tree.embeddings, tree.bias)
    found = kernels / tree.tree.masses(QUERIES)[:, tf.newaxis]
    np.testing.assert_allclose(found, q, rtol=1e-4)


@each_form
def test_the_tree_follows_reported_changes_of_rows(form):
    tree = Tree(**form)
    tree.change([3, 4])  # Before the first build.
    for step in range(8):
        tree.step()
        tree.change([step, 100 * step, step, -1 % NUM_ROWS])
    tree.tree.rows_changed(tf.constant([-1, -1], tf.int64))
    tree.step()
    assert tree.weights["num_stale"].numpy() == 0 and tree.tree.health()["built_at"] == 0
    assert tree.is_fresh()


@pytest.mark.slow
def test_draws_follow_the_kernel_after_a_thousand_updates():
    tree = Tree()
    tree.step()
    for _ in range(1000):
        tree.change(tree.random.integers(NUM_ROWS, size=3))
        tree.step()
    ids, q = tree.sample(100_000, labels=IDS[:0])[0], tree.q()
    for row, expected in zip(ids, q, strict=True):
        counts = np.bincount(row, minlength=NUM_ROWS)
        assert abs(reference.chi_square_deviation(counts, expected)) < 5
    assert tree.is_fresh()


def test_unreported_changes_are_found_at_intervals():
    tree, built_at = Tree(), []
    for _ in range(200):
        tree.step()
        tree.change(IDS, told=False)
        built_at.append(tree.tree.health()["built_at"])
    assert sorted(set(built_at)) == [0, 50, 100, 150]
    for _ in range(60):
        tree.step()
    assert tree.tree.health()["built_at"] == 200 and tree.is_fresh()


def test_rows_that_cannot_be_summed_raise_an_error_and_change_nothing():
    tree = Tree()
    tree.step()
    before = {name: weight.numpy() for name, weight in tree.weights.items()}
    tree.embeddings[77, 1].assign(np.nan)
    tree.tree.rows_changed(tf.constant([77], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="class 77"):
        tree.step()
    np.testing.assert_array_equal(tree.weights["sums"], before["sums"])
    np.testing.assert_array_equal(tree.weights["schedule"], before["schedule"])
    tree.embeddings.assign(ROWS)
    tree.step()
    assert tree.is_fresh()


@pytest.mark.parametrize("wrong", [0, -1.0, np.nan, np.inf, "much", 1e31])
def test_an_invalid_alpha_raises_an_error(wrong):
    with pytest.raises(ValueError, match="alpha"):
        KernelTree(alpha=wrong)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, DIM + 1])
def test_a_projection_wider_than_the_rows_raises_an_error(wrong):
    with pytest.raises(ValueError, match="projection_dim"):
        KernelTree(projection_dim=wrong).build(NUM_ROWS, DIM, True, add_weight)


@pytest.mark.parametrize("wrong", [0, 2.5, 2**31])
def test_an_invalid_leaf_size_raises_an_error(wrong):
    with pytest.raises(ValueError, match="leaf_size"):
        KernelTree(leaf_size=wrong)
