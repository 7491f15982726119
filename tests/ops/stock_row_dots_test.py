"""Logits of classes of each example: the stock operations against the op library."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tests.slow import slow_but
from tf_largeout.ops import row_dot_ops, stock

native = native_ops.load()


@pytest.fixture
def use(monkeypatch):
    """Returns a function that sets the implementation of `row_dot_ops`."""
    return lambda ops: monkeypatch.setattr(row_dot_ops, "gen_ops", ops)


class Problem:
    """Random features, classes, ids and weights of the loss."""

    def __init__(self, rng, has_bias=None, num_ids=None):
        batch, dim, num_classes = rng.integers(1, 12), rng.integers(1, 9), rng.integers(1, 30)
        num_ids = rng.integers(0, 6) if num_ids is None else num_ids
        num_shared = rng.integers(0, 9)
        floats = lambda *shape: rng.normal(size=shape).astype("float32")  # noqa: E731
        dtype = tf.bfloat16 if rng.random() < 0.3 else tf.float32
        has_bias = rng.random() < 0.7 if has_bias is None else has_bias
        self.features = tf.constant(floats(batch, dim))
        self.embeddings = tf.Variable(tf.cast(floats(num_classes, dim), dtype))
        self.bias = tf.Variable(floats(num_classes)) if has_bias else None
        self.ids = tf.constant(rng.integers(-1, num_classes, (batch, num_ids)))
        self.shared_ids = tf.constant(rng.integers(0, num_classes, num_shared))
        self.weights = floats(batch, num_ids), floats(num_shared, dim), floats(num_shared)

    def values(self, ids, shared_ids):
        """Returns the results, and the gradients of the features and, dense, the variables."""
        sources = [x for x in (self.features, self.embeddings, self.bias) if x is not None]
        with tf.GradientTape() as tape:
            tape.watch(self.features)
            results = row_dot_ops.row_dots_and_rows(
                self.features, self.embeddings, self.bias, ids, shared_ids
            )
            results = [one for one in results if one is not None]
            loss = tf.add_n(
                [tf.reduce_sum(tf.where(abs(one) < 1e30, one * w, 0)) for one, w in
                 zip(results, self.weights, strict=False)]
            )  # fmt: skip
        d_features, *slices = tape.gradient(loss, sources)
        return [*results, d_features, *(dense(each) for each in slices)]


def dense(slices):
    """Returns the dense gradient; ids of -1 have no effect."""
    assert isinstance(slices, tf.IndexedSlices) and slices.values.dtype == tf.float32
    return tf.math.unsorted_segment_sum(
        slices.values, slices.indices, tf.cast(slices.dense_shape[0], tf.int32)
    )


def check(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cases", slow_but([60], [60, 3000]))
def test_results_and_gradients_equal_those_of_the_op_library(cases, use):
    rng = np.random.default_rng(cases)
    for case in range(cases):
        problem = Problem(rng, *([case % 2 == 0, 3] if case < 2 else []))
        arguments = problem.ids, problem.shared_ids
        use(native)
        expected = problem.values(*arguments)
        use(stock)
        check(problem.values(*arguments), expected)
        if case < 2:
            check(tf.function(problem.values)(*arguments), expected)
            check(tf.function(problem.values, jit_compile=True)(*arguments), expected)


@pytest.mark.parametrize("ids, shared, expected", [
    ([[-1, 2], [1, -1]], [0, 1], [0, 1, 2, 2, 2, 2]),
    ([[-1], [-1]], [], [-1, -1]),
    ([[], []], [], []),
])  # fmt: skip
def test_gradients_have_one_row_per_class_and_then_rows_of_zeros(ids, shared, expected):
    table = tf.Variable(tf.ones([5, 2]))
    ids, shared = tf.constant(ids, tf.int64), tf.constant(shared, tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(table.handle)
        results = stock.largeout_row_dots(tf.ones([2, 2]), table.handle, [], ids, shared)
    slices = tape.gradient(results[0], table.handle)
    np.testing.assert_array_equal(slices.indices, expected)
    np.testing.assert_array_equal(slices.values.numpy()[len(set(expected) - {-1}) :], 0)


@pytest.mark.parametrize("bad", [-2, 5, 2**40])
@pytest.mark.parametrize("name", ["ids", "shared_ids"])
def test_ids_out_of_range_raise_an_error_or_give_nan(name, bad):
    table, bias = tf.Variable(tf.ones([5, 3])), tf.Variable(tf.ones([5]))

    def dots(ids, shared_ids):
        return stock.largeout_row_dots(
            tf.ones([2, 3]), table.handle, [bias.handle], ids, shared_ids
        )

    ids, shared = np.array([[0, 4], [1, -1]]), np.array([3, 4])
    {"ids": ids, "shared_ids": shared}[name].reshape(-1)[1] = bad
    arguments = tf.constant(ids), tf.constant(shared)
    match = rf"{name} must be class ids in \[0, 5\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{match}.*got {bad} at"):
        dots(*arguments)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(dots)(*arguments)
    logits, rows, (biases,) = tf.function(dots, jit_compile=True)(*arguments)
    is_bad = name == "ids"
    np.testing.assert_array_equal(np.isnan(logits), [[False, is_bad], [False, False]])
    np.testing.assert_array_equal(np.isnan(rows)[:, 0], [False, not is_bad])
    np.testing.assert_array_equal(np.isnan(biases), [False, not is_bad])


@pytest.mark.parametrize("in_graph", [False, True])
def test_handles_that_do_not_tell_their_dtype_are_read(in_graph):
    table = tf.Variable(tf.constant([[1.0], [2.0]], tf.bfloat16))

    def logits():
        handle = tf.identity(table.handle)
        ids = tf.constant([[1]], tf.int64)
        return stock.largeout_row_dots(tf.ones([1, 1]), handle, [], ids, ids[0])[:2]

    for values in (tf.function(logits) if in_graph else logits)():
        np.testing.assert_array_equal(values, [[2]])


WRONG = {
    r"features must be float32, got a tensor of float64": {
        "features": tf.ones([2, 3], tf.float64)
    },
    r"shared_ids must be int64, got a tensor of int32": {"shared_ids": tf.constant([1])},
    r"features must be \[batch, dim\] with dim 3 .*got \[2,4\]": {"features": tf.ones([2, 4])},
    r"ids must be .* with batch 2 .*got \[3,1\]": {"ids": tf.zeros([3, 1], tf.int64)},
    r"embeddings must be .*float16": {"embeddings": tf.ones([5, 3], tf.float16)},
    r"embeddings must be .* shape \[5\]": {"embeddings": tf.ones([5])},
    r"bias must be .*float64": {"bias": [tf.ones([5], tf.float64)]},
    r"bias must be .* shape \[4\]": {"bias": [tf.ones([4])]},
}


@pytest.mark.parametrize("match", WRONG)
def test_wrong_dtypes_and_shapes_raise_an_error(match):
    arguments = {
        "features": tf.ones([2, 3]), "embeddings": tf.ones([5, 3]), "bias": [tf.ones([5])],
        "ids": tf.zeros([2, 1], tf.int64), "shared_ids": tf.zeros([1], tf.int64),
    } | WRONG[match]  # fmt: skip
    table, bias = tf.Variable(arguments["embeddings"]), [tf.Variable(*arguments["bias"])]
    arguments |= {"embeddings": table.handle, "bias": [bias[0].handle]}
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match=match):
        stock.largeout_row_dots(**arguments)


@keras.saving.register_keras_serializable(package="tests")
class Dots(keras.layers.Layer):
    """Logits of the ids of each example, for a table that Keras trains."""

    def build(self, _):
        self.table = self.add_weight(shape=(9, 4), initializer="glorot_normal", name="table")
        self.bias = self.add_weight(shape=(9,), initializer="zeros", name="bias")

    def call(self, features):
        ids = tf.constant([[1, 2, -1], [3, 1, 1]], tf.int64)
        logits, rows, _ = row_dot_ops.row_dots_and_rows(
            features, self.table, self.bias, ids, tf.constant([8], tf.int64)
        )
        return tf.where(ids != -1, logits, 0.0) + tf.reduce_sum(rows)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_keras_trains_the_same_weights(optimizer, jit_compile, use):
    rng = np.random.default_rng(2)
    features, targets = (rng.normal(size=(2, n)).astype("float32") for n in (4, 3))
    trained = []
    for ops, compiled in ((native, False), (stock, jit_compile)):
        use(ops)
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input([4]), Dots()])
        model.compile(optimizer, "mse", jit_compile=compiled)
        for _ in range(3):
            model.train_on_batch(features, targets)
        trained.append(model.get_weights())
    check(*trained)
