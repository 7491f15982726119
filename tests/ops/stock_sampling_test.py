"""Draws and tables of the stock operations are those of the op library."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tests.slow import slow_but
from tf_largeout.ops import stock

native = native_ops.load()
SIZES = [1, 2, 3, 10, 100, 5000]


def random_weights(rng, num_classes):
    """Returns weights of one of several kinds: equal, with ties, of all magnitudes, ..."""
    kind = rng.integers(5)
    if kind == 0:
        return np.ones(num_classes)
    if kind == 1:
        return rng.integers(1, 4, num_classes).astype(float)
    if kind == 2:
        return rng.permutation(1 / np.arange(1.0, num_classes + 1))
    if kind == 3:
        return np.exp(rng.normal(0, 10, num_classes))
    return rng.uniform(size=num_classes) + 1e-3


def tables_of(ops, weights, num_sampled, unique):
    if not unique:
        return ops.largeout_alias_table(weights)
    return ops.largeout_pivotal_table(weights, num_sampled, max(len(weights) // 4, 1))


def sampler(name, weights, num_sampled, unique):
    """Returns a function of labels and a seed that draws by `ops`."""
    counts = {"num_sampled": num_sampled}
    if name != "table":
        counts |= {"num_classes": len(weights), "unique": unique}
        return lambda ops, *a: getattr(ops, f"largeout_{name}_sample")(*a, **counts)
    tables = tables_of(native, weights, num_sampled, unique)
    kind = "pivotal" if unique else "alias"
    return lambda ops, *a: getattr(ops, f"largeout_{kind}_sample")(*a, *tables, **counts)


def check(one, other):
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(one[1], other[1], rtol=1e-6)
    np.testing.assert_allclose(one[2], other[2], rtol=1e-6)


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "table"])
@pytest.mark.parametrize("cases", slow_but([25], [25, 1500]))
def test_draws_are_bit_identical_and_counts_are_equal(name, cases):
    rng = np.random.default_rng(cases)
    for case in range(cases):
        num_classes = int(rng.choice(SIZES))
        unique = bool(case % 2)
        most = min(num_classes, 300) if unique else 300
        num_sampled = (
            num_classes if case % 7 == 0 and unique else int(rng.integers(1, most + 1))
        )
        draw = sampler(name, random_weights(rng, num_classes), num_sampled, unique)
        arguments = [
            tf.constant(rng.integers(-1, num_classes, (5, 3))),
            tf.constant(rng.integers(-(2**63), 2**63 - 1, 2)),
        ]
        found = draw(stock, *arguments)
        check(found, draw(native, *arguments))
        if case in (0, 9):
            compiled = tf.function(lambda *a, draw=draw: draw(stock, *a), jit_compile=True)
            check(found, compiled(*arguments))


@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
@pytest.mark.parametrize("unique", [False, True])
def test_draws_from_very_many_classes_are_bit_identical(name, unique):
    for num_classes in (10**8, 2**31):
        counts = {"num_classes": num_classes, "num_sampled": 4000, "unique": unique}
        labels = tf.constant([[0, 1, num_classes // 2, num_classes - 1, -1]], tf.int64)
        arguments = labels, tf.constant([num_classes, 7], tf.int64)
        results = [
            getattr(ops, f"largeout_{name}_sample")(*arguments, **counts)
            for ops in (stock, native)
        ]
        check(*results)


@pytest.mark.parametrize("cases", slow_but([100], [100, 3000]))
def test_tables_are_bit_identical(cases):
    rng = np.random.default_rng(cases + 1)
    for case in range(cases):
        num_classes = int(rng.choice(SIZES))
        num_sampled = int(rng.integers(1, num_classes + 1))
        weights = tf.constant(random_weights(rng, num_classes))
        results = [
            tables_of(ops, weights, num_sampled, bool(case % 2)) for ops in (stock, native)
        ]
        for one, other in zip(*results, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_tables_are_made_in_graphs_with_static_shapes():
    weights = tf.constant([3.0, 1.0, 2.0], tf.float64)
    for unique in (False, True):
        function = tf.function(lambda w, unique=unique: tables_of(stock, w, 2, unique))
        concrete = function.get_concrete_function(weights)
        assert all(shape.is_fully_defined() for shape in concrete.output_shapes)
        for one, other in zip(
            function(weights), tables_of(native, weights, 2, unique), strict=True
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "table"])
@pytest.mark.parametrize("unique", [False, True])
def test_labels_out_of_range_raise_an_error_or_have_counts_of_nan(name, unique):
    draw = sampler(name, np.ones(9), 4, unique)
    function = lambda *a: draw(stock, *a)  # noqa: E731
    graph, compiled = tf.function(function), tf.function(function, jit_compile=True)
    match = r"labels must be class ids in \[0, 9\)"
    for label in (-2, 9, 2**40):
        arguments = tf.constant([[label, 3]], tf.int64), tf.constant([0, 0], tf.int64)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{match}.* got {label} at"):
            function(*arguments)
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            graph(*arguments)
        np.testing.assert_array_equal(np.isnan(compiled(*arguments)[1]), [[True, False]])


def test_a_compiled_step_has_counts_of_nan_if_its_table_does_not_fit():
    cumulative, index = stock.largeout_pivotal_table(tf.ones([9], tf.float64), 5, 3)
    labels, seed = tf.constant([[1]], tf.int64), tf.constant([0, 0], tf.int64)
    for table in (cumulative, tf.zeros_like(cumulative)):
        draw = lambda table: stock.largeout_pivotal_sample(labels, seed, table, index, 3)  # noqa: E731
        with pytest.raises(tf.errors.FailedPreconditionError):
            draw(table)
        _, true_counts, counts = tf.function(draw, jit_compile=True)(table)
        assert np.all(np.isnan(true_counts)) and np.all(np.isnan(counts))


WRONG = {
    "labels must be int64, got a tensor of int32": lambda: stock.largeout_uniform_sample(
        tf.constant([[1]]), [0, 0], 9, 2, False
    ),
    "probability must be float32, got a tensor of float64": lambda: stock.largeout_alias_sample(
        [[1]], [0, 0], [[1, 0]], tf.ones([1], tf.float64), 2
    ),
    "weights must be float64, got a tensor of float32": lambda: stock.largeout_alias_table(
        tf.ones([3])
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_dtypes_are_type_errors(message):
    with pytest.raises(TypeError, match=message):
        WRONG[message]()
