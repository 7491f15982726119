"""The factored output: the stock operations against the op library, on random inputs."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tests.reference.factored_output import with_folds
from tf_largeout.ops import stock
from tf_largeout.papers.factored import factored_output_ops as ops

native = native_ops.load()
PLACES = 8


@pytest.fixture
def use(monkeypatch):
    """Returns a function that sets the implementation of `factored_output_ops`."""
    return lambda implementation: monkeypatch.setattr(ops, "gen_ops", implementation)


class Problem:
    """A random layer, whose U may have large and small singular values, and batches."""

    def __init__(self, seed, dtype):
        rng = np.random.default_rng(seed)
        self.rng, width = rng, int(rng.integers(2, 24))
        self.num_classes, self.dim = int(rng.integers(1, 80)), width - int(rng.integers(2))
        self.dtype = dtype
        left, right = (np.linalg.qr(rng.normal(size=[width, width]))[0] for _ in range(2))
        spread = [100, 0.02, 1e-3][: int(rng.integers(4))] if dtype == np.float64 else []
        values = np.ones(width)
        values[: len(spread)] = spread[:width]
        mixing = left * values @ right.T
        vectors = rng.normal(size=[self.num_classes, width]) @ np.linalg.inv(mixing)
        vectors = vectors.astype(dtype)
        offset = 0.1 * rng.normal(size=width)
        weights = vectors.astype("f8") @ mixing + offset
        doubles = mixing, np.linalg.inv(mixing), offset, weights.sum(0), weights.T @ weights
        self.start = [vectors, *doubles, np.int64(rng.choice([0, 254]))]
        self.start += [np.zeros([PLACES + 1, width + 1]), np.zeros(self.num_classes, "u4")]
        self.batches = [self.batch() for _ in range(5)]

    def batch(self):
        rng, size = self.rng, int(self.rng.choice([0, 1, 5, 40]))
        features = rng.normal(size=[size, self.dim])
        ids = rng.integers(-1, self.num_classes, [size, int(rng.integers(0, 4))])
        slopes = [rng.normal(size=size) / max(size, 1) for _ in range(2)]
        slopes += [rng.normal(size=ids.shape) / max(size, 1)]
        slopes[0] *= 1e-2
        slopes[1] *= 1e-2
        rate = 0.5 / (1 + np.max(np.sum(features**2, axis=1), initial=0))
        return features.astype(self.dtype), ids, *slopes, rate

    def run(self, steps, wrapped=lambda step: step):
        """Returns the results of steps, and the state after them."""
        state, found = ops.FactoredState(*(tf.Variable(one) for one in self.start)), []

        def step(features, ids, by_q, by_s, by_a, rate):
            scores = ops.factored_output_scores(features, ids, state)
            gradient = ops.factored_output_step(
                features, ids, by_q, by_s, by_a, scores, rate, state
            )
            return *scores[:5], gradient

        for batch in steps:
            found += [one.numpy() for one in wrapped(step)(*map(tf.constant, batch))]
        return found, [one.numpy() for one in state]


def weights_of(state):
    vectors, mixing, _, offset, *_, folds, seen = state
    return with_folds(vectors, folds, seen) @ mixing + offset


def check_close(found, expected, tolerance):
    scale = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found / scale, expected / scale, tolerance, tolerance)


def check_equal(found, expected, tolerance):
    for one, other in zip(found[0], expected[0], strict=True):
        assert one.dtype == other.dtype
        check_close(one, other, tolerance)
    state, other_state = found[1], expected[1]
    check_close(weights_of(state), weights_of(other_state), tolerance)
    for place in (4, 5):  # w_bar and Q
        check_close(state[place], other_state[place], tolerance * len(state[0]))
    check_close(state[1] @ state[2], np.eye(len(state[1])), 1e-6)
    assert state[6] == other_state[6] and state[7][0, 0] == other_state[7][0, 0]
    np.testing.assert_array_equal(state[8], other_state[8])


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-8)])
def test_steps_are_equal(dtype, tolerance, use):
    for seed in range(25):
        problem = Problem(seed, dtype)
        use(native)
        expected = problem.run(problem.batches)
        use(stock)
        check_equal(problem.run(problem.batches), expected, tolerance)


def test_all_folds_can_be_applied(use):
    for seed in range(20):
        problem = Problem(seed, np.float64)
        use(stock)
        state = ops.FactoredState(*map(tf.Variable, problem.run(problem.batches)[1]))
        names = "vectors", "folds", "seen"
        expected = with_folds(*(getattr(state, name).numpy() for name in names))
        check_close(ops.factored_output_vectors(state).numpy(), expected, 1e-10)
        ops.factored_output_take_folds(state)
        check_close(state.vectors.numpy(), expected, 1e-10)
        assert not np.any(state.folds) and not np.any(state.seen)


def test_steps_in_a_function_and_compiled_scores_are_equal(use):
    use(stock)
    problem = Problem(5, np.float64)
    expected = problem.run(problem.batches[:2])
    check_equal(problem.run(problem.batches[:2], tf.function), expected, 1e-8)
    state = ops.FactoredState(*map(tf.Variable, expected[1]))
    features, ids, *_ = max(problem.batches, key=lambda batch: batch[1].size)
    scores = lambda: ops.factored_output_scores(features, ids, state)  # noqa: E731
    for one, other in zip(tf.function(scores, jit_compile=True)(), scores(), strict=True):
        check_close(one.numpy(), other.numpy(), 1e-12)


def test_a_refused_step_changes_nothing_where_no_error_can_be_raised(use, monkeypatch):
    use(stock)
    monkeypatch.setattr(stock.errors, "all_true", lambda good, numbers, text, tensor: tensor)
    problem = Problem(5, np.float64)
    largest = max(problem.batches, key=lambda batch: batch[1].size)
    for place, bad in ((0, np.nan), (1, 10**6), (2, np.inf), (4, np.nan), (5, 1e300)):
        batch = [np.array(one) for one in largest]
        batch[place][...] = bad
        found, state = problem.run([batch])
        assert np.all(np.isnan(found[-1]))
        for one, before in zip(state, problem.start, strict=True):
            np.testing.assert_array_equal(one, before)
