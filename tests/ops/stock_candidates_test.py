"""Operations on candidates' logits: the stock operations against the op library."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tests.slow import slow_but
from tf_largeout.ops import candidate_ops, stock

native = native_ops.load()


@pytest.fixture
def use(monkeypatch):
    """Returns a function that sets the implementation of `candidate_ops`."""
    return lambda ops: monkeypatch.setattr(candidate_ops, "gen_ops", ops)


def problem(rng):
    """Random logits, offsets, labels, candidates, ranked labels and their logits."""
    batch, num_candidates = rng.integers(1, 20), rng.integers(1, 60)
    num_classes = rng.integers(1, 40)
    shape = (batch, num_candidates) if rng.random() < 0.5 else (num_candidates,)
    ids = lambda *sizes: tf.constant(rng.integers(-1, num_classes, sizes))  # noqa: E731
    num_ranked = rng.choice([0, 1, 4, 18])
    floats = [
        rng.normal(size=(batch, num_candidates)) * rng.choice([1, 30]),
        rng.normal(size=shape),
        rng.normal(size=(batch, num_ranked)),
    ]
    if rng.random() < 0.5:  # Many scores are equal.
        floats = [np.round(each) for each in floats]
    for each in floats:
        if rng.random() < 0.3:
            each[rng.random(each.shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    logits, offsets, true_logits = [tf.constant(each, tf.float32) for each in floats]
    labels = ids(batch, rng.choice([0, 1, 3, 20]))
    return logits, offsets, labels, ids(*shape), ids(batch, num_ranked), true_logits


def results(logits, offsets, labels, candidates, ranked, true_logits, weights):
    """Returns the results of all operations, and the gradients of the logits and offsets."""
    found = [
        candidate_ops.candidate_ranks(logits, offsets, labels, candidates, ranked, true_logits)
    ]
    for operation in (
        lambda: candidate_ops.mask_accidental_hits(logits, labels, candidates),
        lambda: candidate_ops.shifted_candidate_logits(logits, offsets, labels, candidates),
        lambda: candidate_ops.candidate_log_partition(logits, offsets, labels, candidates),
    ):
        with tf.GradientTape() as tape:
            tape.watch([logits, offsets])
            value = operation()
        own = weights[:, 0] if value.shape.rank == 1 else weights
        found.append(value)
        found += tape.gradient(value, [logits, offsets], own, tf.UnconnectedGradients.ZERO)
    return found


def check(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cases", slow_but([40], [40, 2000]))
def test_results_and_gradients_equal_those_of_the_op_library(cases, use):
    rng = np.random.default_rng(cases)
    for case in range(cases):
        arguments = problem(rng)
        arguments += (tf.constant(rng.normal(size=arguments[0].shape), tf.float32),)
        use(native)
        expected = results(*arguments)
        use(stock)
        check(results(*arguments), expected)
        if case < 2:
            check(tf.function(results)(*arguments), expected)
            check(tf.function(results, jit_compile=True)(*arguments), expected)


def test_shapes_are_inferred_and_may_be_dynamic(use):
    use(stock)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 8]),
            tf.TensorSpec([None, None], tf.int64),
            tf.TensorSpec([None], tf.int64),
        ]
    )
    def shifted(logits, labels, candidates):
        ranks = candidate_ops.candidate_ranks(
            logits, logits, labels, candidates, labels, tf.cast(labels, tf.float32)
        )
        assert ranks.shape.as_list() == [None, None]
        log_partition = candidate_ops.candidate_log_partition(
            logits, logits, labels, candidates
        )
        assert log_partition.shape.as_list() == [None]
        result = candidate_ops.shifted_candidate_logits(logits, logits, labels, candidates)
        assert result.shape.as_list() == [None, 8]
        return result

    candidates = tf.range(8, dtype=tf.int64)
    lowest = shifted(tf.zeros([2, 8]), [[1], [-1]], candidates) == tf.float32.min
    np.testing.assert_array_equal(np.argwhere(lowest), [[0, 1]])


def test_wrong_dtypes_are_type_errors():
    for place, dtype in enumerate([tf.float64, tf.bfloat16, tf.int32, tf.int32]):
        arguments = [tf.zeros([1, 1]), tf.zeros([1]), [[1]], [1]]
        arguments[place] = tf.zeros([1, 1], dtype)
        with pytest.raises(TypeError, match=f"must be .*, got a tensor of {dtype.name}"):
            stock.largeout_candidate_log_partition(*arguments)
