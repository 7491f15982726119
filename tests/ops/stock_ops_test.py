"""The stock operations against the op library, on random inputs."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tf_largeout.ops import stock

native = native_ops.load()


class Compiled:
    """The stock operations, in functions that XLA compiles."""

    def __getattr__(self, name):
        return getattr(stock, name)


def call(ops, function):
    """Returns the tensors of a function that uses `ops`."""
    if not isinstance(ops, Compiled):
        return function()
    keep = lambda: [one for one in tf.nest.flatten(function()) if tf.is_tensor(one)]  # noqa: E731
    return tf.function(keep, jit_compile=True)()


class Draws:
    """Random arguments; `again` gives equal arguments, with new variables."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.batch, self.dim = self.rng.integers(1, 9), self.rng.integers(1, 20)
        self.num_rows = int(self.rng.integers(1, 200))
        self.count = int(self.rng.integers(0, 60))
        self.ties = self.rng.random() < 0.3

    def floats(self, *shape):
        values = self.rng.integers(-1, 2, shape) if self.ties else self.rng.normal(size=shape)
        return tf.constant(values, tf.float32)

    def positive(self, *shape):
        return tf.abs(self.floats(*shape)) + 0.5

    def scalar(self, low, high):
        return tf.constant(self.rng.uniform(low, high), tf.float32)

    def ids(self, *shape, low=0):
        return tf.constant(self.rng.integers(low, self.num_rows, shape), tf.int64)

    def table(self, *shape):
        return tf.Variable(self.positive(self.num_rows, *shape))

    def maybe(self, make):
        return [make()] if self.rng.random() < 0.5 else []


def updates(op, make):
    """Returns a case: the variables after an update, for each implementation."""

    def run(ops, draws):
        variable, slots, arguments, options = make(draws)
        grads = draws.floats(draws.count, draws.dim), draws.ids(draws.count)
        handles = [
            [one.handle for one in s] if isinstance(s, list) else s.handle for s in slots
        ]
        step = getattr(ops, op)
        call(ops, lambda: step(variable.handle, *handles, *grads, *arguments, **options))
        return [variable, *tf.nest.flatten(slots)]

    return run


def adam(draws):
    dim = draws.dim
    slots = [draws.maybe(lambda: draws.table(dim)), draws.table(dim)]
    slots.append(draws.maybe(lambda: tf.Variable(draws.ids(draws.num_rows))))
    betas = [tf.constant(draws.rng.uniform(0, 1), tf.float64) for _ in range(2)]
    step = tf.constant(draws.num_rows + 3, tf.int64)
    arguments = [step, draws.scalar(0, 1), *betas, draws.scalar(0, 0.1), draws.scalar(0, 0.1)]
    return draws.table(dim), slots, [*arguments, []], {}


def adagrad(draws):
    rates = [draws.scalar(0, 1), draws.scalar(0, 1), draws.scalar(0, 0.1), []]
    return draws.table(draws.dim), [draws.table(draws.dim)], rates, {}


def rowwise_adagrad(draws):
    rates = [draws.scalar(0, 1), draws.scalar(0, 1), draws.scalar(0, 0.1), []]
    return draws.table(draws.dim), [draws.table()], rates, {}


def momentum(draws):
    rates = [draws.scalar(0, 1), draws.scalar(0, 1), draws.scalar(0, 0.1), []]
    slots = [draws.maybe(lambda: draws.table(draws.dim))]
    nesterov = bool(draws.rng.random() < 0.5)
    return draws.table(draws.dim), slots, rates, {"nesterov": nesterov}


def merge(ops, draws):
    given = draws.floats(draws.count, draws.dim), draws.ids(draws.count)
    values, ids = call(ops, lambda: ops.largeout_merge_rows(*given))
    is_row = np.append(True, ids[1:] != ids[:-1])[: len(ids)]  # the last id is repeated
    np.testing.assert_array_equal(tf.boolean_mask(values, ~is_row), 0)
    return tf.boolean_mask(values, is_row), tf.boolean_mask(ids, is_row)


def dense_adam(ops, draws):
    variables = [draws.table(draws.dim) for _ in range(3)]
    betas = [tf.constant(draws.rng.uniform(0, 1), tf.float64) for _ in range(2)]
    gradient = draws.floats(draws.num_rows, draws.dim)
    rates = draws.scalar(0, 1), *betas, draws.scalar(0, 0.1)
    handles = [one.handle for one in variables]
    call(ops, lambda: ops.largeout_dense_adam(*handles, gradient, *rates))
    return variables


def gradients_of(ops, function, inputs):
    """Returns results and, of their weighted sum, the gradients of the inputs."""

    def run():
        with tf.GradientTape() as tape:
            for one in inputs:
                tape.watch(one)
                if isinstance(one, tf.Variable):
                    tf.gather(one, tf.zeros([0], tf.int32))  # watches the handle
            results = tf.nest.flatten(function())
            floats = [one for one in results if one.dtype == tf.float32]
            loss = tf.add_n([tf.reduce_sum(one * (i + 2)) for i, one in enumerate(floats)])
        return results + [densified(one) for one in tape.gradient(loss, inputs)]

    return call(ops, run)


def densified(gradient):
    """Returns a dense gradient; rows with the id -1 are padding."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(
        gradient.values, gradient.indices, tf.cast(gradient.dense_shape[0], tf.int32)
    )


def classes(draws):
    features, table = draws.floats(draws.batch, draws.dim), draws.table(draws.dim)
    table.assign(draws.floats(draws.num_rows, draws.dim))
    return features, table, draws.maybe(draws.table)


def statistics(ops, draws):
    features, table, bias = classes(draws)
    labels = draws.ids(draws.batch, 3, low=-1)
    handles = table.handle, [one.handle for one in bias]
    first = tf.constant(0, tf.int64)
    run = lambda: ops.largeout_class_statistics(features, *handles, labels, [], first)  # noqa
    return gradients_of(ops, run, [features, table, *bias])


def label_logits(ops, draws):
    features, table, bias = classes(draws)
    labels = draws.ids(draws.batch, 3, low=-1)
    handles = table.handle, [one.handle for one in bias]
    run = lambda: ops.largeout_label_logits(features, *handles, labels)  # noqa: E731
    return gradients_of(ops, run, [features, table, *bias])


def top_k(ops, draws):
    features, table, bias = classes(draws)
    k = int(draws.rng.integers(1, draws.num_rows + 1))
    handles = table.handle, [one.handle for one in bias]
    return call(ops, lambda: ops.largeout_class_top_k(features, *handles, [], [], k))


def bag_sums(ops, draws):
    table, ids = draws.table(draws.dim), draws.ids(draws.batch, 5, low=-1)
    weights = draws.floats(draws.batch, 5)
    run = lambda: ops.largeout_bag_sums(table.handle, ids, weights, True)  # noqa: E731
    return gradients_of(ops, run, [table, weights])


def rounded_product(ops, draws):
    flips = [bool(draws.rng.random() < 0.5) for _ in range(2)]
    shapes = [(draws.batch, draws.dim), (draws.dim, draws.num_rows)]
    a, b = (
        draws.floats(*(s[::-1] if flip else s)) for s, flip in zip(shapes, flips, strict=True)
    )
    return gradients_of(ops, lambda: ops.largeout_rounded_product(a, b, *flips), [a, b])


CASES = {
    "row_adam": updates("largeout_row_adam", adam),
    "row_adagrad": updates("largeout_row_adagrad", adagrad),
    "row_rowwise_adagrad": updates("largeout_row_rowwise_adagrad", rowwise_adagrad),
    "row_momentum": updates("largeout_row_momentum", momentum),
    "merge_rows": merge,
    "dense_adam": dense_adam,
    "class_statistics": statistics,
    "label_logits": label_logits,
    "class_top_k": top_k,
    "bag_sums": bag_sums,
    "rounded_product": rounded_product,
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_operations_equal_the_op_library(case):
    check(CASES[case](native, Draws(1)), CASES[case](Compiled(), Draws(1)), 1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_stock_operations_equal_the_op_library(case, count):
    for seed in range(count):
        expected = CASES[case](native, Draws(seed))
        found = CASES[case](stock, Draws(seed))
        check(expected, found, seed)


def check(expected, found, seed):
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        if one.dtype.is_floating:
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=2e-5, err_msg=str(seed))
        else:
            np.testing.assert_array_equal(other, one, err_msg=str(seed))
