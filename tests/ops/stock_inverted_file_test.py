"""Inverted files: the stock operations against the op library, on random inputs."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tf_largeout.ops import inverted_file_ops as ops
from tf_largeout.ops import stock

native = native_ops.load()


@pytest.fixture
def use(monkeypatch):
    """Returns a function that sets the implementation of `inverted_file_ops`."""
    return lambda implementation: monkeypatch.setattr(ops, "gen_ops", implementation)


class Problem:
    """Random classes, some of which are equal, 0 or not finite, and the state of a file."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.rng, dim = rng, int(rng.integers(1, 40))
        self.num_classes = int(rng.integers(1, 700))
        self.num_lists = int(rng.integers(1, self.num_classes + 1) if seed % 2 else 12)
        self.num_lists = min(self.num_lists, self.num_classes)
        centres = rng.normal(size=[self.num_classes // 10 + 1, dim])
        rows = centres[rng.integers(len(centres), size=self.num_classes)]
        self.are_distinct = bool(rng.random() < 0.5)
        if self.are_distinct:
            rows = rows + 0.4 * rng.normal(size=rows.shape)
        if rng.random() < 0.4:
            rows[rng.integers(self.num_classes, size=3)] = rng.choice([0, np.nan, np.inf])
        dtype = tf.bfloat16 if rng.random() < 0.2 else tf.float32
        self.embeddings = tf.Variable(tf.cast(rows, dtype))
        bias = rng.normal(size=self.num_classes)
        bias[rng.integers(self.num_classes)] = rng.choice([1, -np.inf, np.nan])
        self.bias = tf.Variable(bias, dtype=tf.float32) if rng.random() < 0.5 else None
        self.unit_length = bool(rng.random() < 0.4)
        self.state = [tf.Variable(one) for one in self.start(dim)]

    def start(self, dim):
        codes, scales = ops.packed_shapes(self.num_classes, dim)
        shapes = [(self.num_lists, dim), (self.num_lists,), (self.num_lists + 1,)]
        shapes += [(self.num_classes,), codes, scales]
        dtypes = ["f4", "f4", "u4", "u4", "u1", "f4"]
        state = [np.zeros(*one) for one in zip(shapes, dtypes, strict=True)]
        return [*state, np.array([0, -1])]

    def queries(self):
        batch, dim = self.rng.integers(0, 20), self.embeddings.shape[1]
        queries = self.rng.normal(size=[batch, dim])
        if batch and self.rng.random() < 0.2:
            queries[0] = self.rng.choice([0, np.nan, np.inf])
        return tf.constant(queries, tf.float32)

    def fit(self):
        ops.inverted_file_fit(self.embeddings, self.bias, self.state, self.unit_length)

    def keep_up(self, interval, rows_a_step):
        ops.inverted_file_upkeep(
            self.embeddings, self.bias, self.state, interval, rows_a_step, self.unit_length
        )

    def values(self):
        return [one.numpy() for one in self.state]


def lists_of(values):
    """Returns the list of each class."""
    lists = np.zeros(len(values[3]), int)
    lists[values[3]] = np.repeat(np.arange(len(values[0])), np.diff(values[2].astype(int)))
    return lists


def check_search(found, expected):
    scores, ids = (one.numpy() for one in found)
    np.testing.assert_allclose(scores, expected[0], 1e-6, 1e-6)
    different = ids != expected[1].numpy()
    assert different.mean() < 0.002 if different.size > 500 else different.sum() <= 1


def test_searches_of_a_state_are_equal(use):
    for seed in range(40):
        problem = Problem(seed)
        use(native)
        problem.fit()
        for compiled in (False, False, seed % 20 == 0):
            queries = problem.queries()
            num_probes, k = (int(one) for one in problem.rng.integers(1, 60, 2))
            search = lambda: ops.inverted_file_search(queries, problem.state, num_probes, k)  # noqa: E731, B023
            use(native)
            expected = search()
            use(stock)
            found = tf.function(search, jit_compile=True)() if compiled else search()
            check_search(found, expected)


def test_pieces_of_queries_and_of_lists_give_the_same_results(use, monkeypatch):
    problem = Problem(3)
    use(native)
    problem.fit()
    queries = tf.constant(problem.rng.normal(size=[50, problem.embeddings.shape[1]]), "float32")
    expected = ops.inverted_file_search(queries, problem.state, 30, 9)
    monkeypatch.setattr(stock.inverted_file, "_QUERIES_AT_ONCE", 7)
    monkeypatch.setattr(stock.inverted_file, "_NUMBERS_AT_ONCE", 1)
    use(stock)
    check_search(ops.inverted_file_search(queries, problem.state, 30, 9), expected)


@pytest.mark.parametrize("in_graph", [False, True])
def test_fits_and_upkeep_assign_rows_to_the_same_lists(in_graph, use):
    for seed in range(12):
        results = []
        for implementation in (native, stock):
            use(implementation)
            problem = Problem(seed)
            step = lambda: problem.keep_up(2, 30)  # noqa: E731, B023
            step = tf.function(step, autograph=False) if in_graph else step
            for turn in range(7):
                step()
                problem.embeddings.assign(problem.embeddings * (-1 if turn == 2 else 1.1))
            problem.fit()
            results.append(problem.values())
        expected, found = results
        agreement = np.mean(lists_of(found) == lists_of(expected))
        # Between equal rows, rounding errors of the means decide.
        is_distinct = problem.are_distinct and problem.embeddings.dtype == tf.float32
        assert agreement >= (1 if is_distinct else 0.5)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(found[6], expected[6])
        if agreement == 1:
            np.testing.assert_allclose(found[0], expected[0], 1e-4, 1e-5)
            np.testing.assert_allclose(found[5], expected[5], 1e-5)
            assert np.abs(found[4].astype(int) - expected[4]).max() <= 1
