"""Rows in bfloat16: reads are exact, and updates are rounded at random."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import stochastic_rounding as reference
from tf_largeout.ops import row_dot_ops, row_ops
from tf_largeout.variables import class_rows

NUM_ROWS = 9
SEED, STEP = 2**40 + 3, 2**33 + 5
ROUNDING = tf.constant([SEED, STEP], tf.int64)


def steps(dim):
    """Each row step as a function of (variable, values, ids, rounding), with new slots."""

    def slot(value=0.3):
        return tf.Variable(tf.fill([NUM_ROWS, dim], value))

    per_row = tf.Variable(tf.fill([NUM_ROWS], 0.3))
    last = tf.Variable(tf.fill([NUM_ROWS], tf.constant(2, tf.int64)))
    velocity, second, momentum, accumulator = slot(), slot(), slot(), slot()
    descent = slot()
    return {
        "adam": lambda w, v, i, r: row_ops.row_adam(
            w, None, velocity, v, i, 0.1, weight_decay=0.1, rounding=r
        ),
        "adam_momentum": lambda w, v, i, r: row_ops.row_adam(
            w, momentum, second, v, i, 0.1, last_step=last, step=7, rounding=r
        ),
        "adagrad": lambda w, v, i, r: row_ops.row_adagrad(
            w, accumulator, v, i, 0.1, rounding=r
        ),
        "rowwise": lambda w, v, i, r: row_ops.row_rowwise_adagrad(
            w, per_row, v, i, 0.1, rounding=r
        ),
        "nesterov": lambda w, v, i, r: row_ops.row_momentum(
            w, descent, v, i, 0.1, nesterov=True, rounding=r
        ),
        "sgd": lambda w, v, i, r: row_ops.row_momentum(w, None, v, i, 0.1, rounding=r),
    }


STEPS = list(steps(1))
each_step = pytest.mark.parametrize("name", STEPS)


def table(dim, rng):
    """Returns random rows in bfloat16 and the same rows in float32, as variables."""
    rounded = tf.cast(rng.normal(size=(NUM_ROWS, dim)), tf.bfloat16)
    return tf.Variable(rounded), tf.Variable(tf.cast(rounded, tf.float32))


@each_step
@pytest.mark.parametrize("dim", [1, 7, 8, 37, 130])
def test_a_step_is_that_of_float32_rounded_at_random(name, dim, for_all_simd_levels):
    rng = np.random.default_rng(dim)
    rows, exact = table(dim, rng)
    ids = np.array([7, 0, 3, 7, 8])
    values = tf.constant(rng.normal(size=(5, dim)), tf.float32)
    steps(dim)[name](rows, values, ids, ROUNDING)
    steps(dim)[name](exact, values, ids, None)
    expected = exact.numpy()
    for row in set(ids):
        expected[row] = reference.rounded(expected[row], SEED, STEP, int(row))
    np.testing.assert_array_equal(tf.cast(rows, tf.float32), expected)


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(0)
    rows, _ = table(16, rng)
    other = tf.Variable(rows)
    values = tf.constant(rng.normal(size=(4, 16)), tf.float32)
    ids, order = np.array([5, 2, 8, 0]), np.array([2, 0, 3, 1])
    row_ops.row_momentum(rows, None, values, ids, 0.1, rounding=ROUNDING)
    row_ops.row_momentum(
        other, None, tf.gather(values, order), ids[order], 0.1, rounding=ROUNDING
    )
    np.testing.assert_array_equal(rows, other)


def test_the_mean_of_many_roundings_is_the_number():
    count, dim = 4000, 8
    rows = tf.Variable(tf.ones([count, dim], tf.bfloat16))
    change = np.linspace(0.0001, 0.0077, dim, dtype="float32")  # below 2^-7, the next number
    values = tf.constant(-np.tile(change, (count, 1)))
    row_ops.row_momentum(rows, None, values, tf.range(count), 1.0, rounding=ROUNDING)
    mean = tf.cast(rows, tf.float64).numpy().mean(axis=0)
    share = change * 128
    deviation = np.sqrt(share * (1 - share) / count) / 128
    np.testing.assert_array_less(np.abs(mean - 1 - change), 5 * deviation)


def test_small_updates_move_rows_on_average_and_not_if_rounded_to_the_nearest():
    updates, size, dim = 300, 1e-4, 64  # a twentieth of half the distance of neighbours
    rows = tf.Variable(tf.ones([1, dim], tf.bfloat16))
    nearest = tf.Variable(tf.ones([1, dim], tf.bfloat16))
    gradient, ids = tf.ones([1, dim]), tf.constant([0])
    for step in range(updates):
        rounding = tf.constant([0, step], tf.int64)
        row_ops.row_momentum(rows, None, gradient, ids, size, rounding=rounding)
        nearest.assign(tf.cast(tf.cast(nearest, tf.float32) - size, tf.bfloat16))
    np.testing.assert_array_equal(tf.cast(nearest, tf.float32), np.ones([1, dim]))
    moved = 1 - tf.cast(rows, tf.float64).numpy()
    # Below 1 the neighbours are 2^-8 apart: a step is up with probability size * 2^8.
    share = size * 256
    deviation = np.sqrt(updates * share * (1 - share) / dim) / 256
    assert abs(moved.mean() - updates * size) < 5 * deviation


def test_nan_and_infinity_stay_and_large_numbers_stay_finite():
    rows = tf.Variable(tf.zeros([1, 4], tf.bfloat16))
    most = np.finfo("float32").max
    gradient = -tf.constant([[np.nan, np.inf, -np.inf, most]], tf.float32)
    row_ops.row_momentum(rows, None, gradient, [0], 1.0, rounding=ROUNDING)
    found = tf.cast(rows, tf.float32).numpy()[0]
    np.testing.assert_array_equal(found[:3], [np.nan, np.inf, -np.inf])
    assert np.isfinite(found[3]) and found[3] > 3.38e38


@each_step
def test_wrong_dtype_or_missing_rounding_changes_nothing(name):
    rows, exact = table(4, np.random.default_rng(1))
    for variable, rounding in ((rows, None), (exact, ROUNDING)):
        before = tf.identity(variable)
        with pytest.raises(tf.errors.InvalidArgumentError, match="the variable must be"):
            steps(4)[name](variable, tf.ones([1, 4]), [0], rounding)
        np.testing.assert_array_equal(variable, before)
    with pytest.raises(tf.errors.InvalidArgumentError, match="rounding must be"):
        steps(4)[name](rows, tf.ones([1, 4]), [0], tf.zeros([3], tf.int64))


@pytest.mark.parametrize("has_bias", [True, False])
def test_row_dots_and_gradients_equal_those_of_float32_rows(has_bias):
    rng = np.random.default_rng(2)
    rows, exact = table(24, rng)
    bias = tf.Variable(rng.normal(size=NUM_ROWS).astype("float32")) if has_bias else None
    features = tf.constant(rng.normal(size=(6, 24)), tf.float32)
    ids, shared = rng.integers(-1, NUM_ROWS, (6, 5)), np.array([4, 1, 4, 8])

    def run(embeddings):
        with tf.GradientTape() as tape:
            tape.watch(features)
            found = row_dot_ops.row_dots_and_rows(features, embeddings, bias, ids, shared)
            parts = [tf.where(ids >= 0, found[0], 0), *found[1:]]
            loss = sum(tf.reduce_sum(tf.sin(one)) for one in parts if one is not None)
        sources = [features, embeddings, *([bias] if has_bias else [])]
        return [one for one in found if one is not None], tape.gradient(loss, sources)

    (found, gradients), (expected, expected_gradients) = run(rows), run(exact)
    assert gradients[1].values.dtype == tf.float32
    for one, other in zip(
        tf.nest.flatten([found, gradients], expand_composites=True),
        tf.nest.flatten([expected, expected_gradients], expand_composites=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_widened_rows_have_a_float32_gradient():
    rows, exact = table(3, np.random.default_rng(3))
    with tf.GradientTape() as tape:
        wide = class_rows.widened(rows)
        loss = tf.reduce_sum(wide * 1.001)
    gradient = tape.gradient(loss, rows)
    np.testing.assert_array_equal(wide, exact)
    np.testing.assert_array_equal(gradient, np.full((NUM_ROWS, 3), np.float32(1.001)))
