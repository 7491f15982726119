import numpy as np
import pytest
import tensorflow as tf

from tf_largeout.ops import matmul_ops
from tf_largeout.ops.library import gen_ops

# (rows, depth, width): no multiple of any block, and small ones.
SHAPES = [(1, 1, 1), (7, 65, 33), (300, 129, 70), (5, 0, 3), (0, 4, 3), (3, 4, 0)]
TRANSPOSED = [(False, False), (True, False), (False, True)]
each_shape = pytest.mark.parametrize("rows, depth, width", SHAPES)
each_form = pytest.mark.parametrize("transpose_a, transpose_b", TRANSPOSED)


def _factors(rows, depth, width, transpose_a, transpose_b):
    rng = np.random.default_rng(depth)
    a = rng.normal(size=(depth, rows) if transpose_a else (rows, depth)).astype("float32")
    b = rng.normal(size=(width, depth) if transpose_b else (depth, width)).astype("float32")
    return a, b


@pytest.mark.usefixtures("for_all_simd_levels")
@each_shape
@each_form
def test_products_and_gradients_are_those_of_numpy(
    rows, depth, width, transpose_a, transpose_b
):
    a, b = _factors(rows, depth, width, transpose_a, transpose_b)
    weights = np.random.default_rng(1).normal(size=(rows, width)).astype("float32")
    variables = tf.constant(a), tf.constant(b)
    with tf.GradientTape() as tape:
        tape.watch(variables)
        product = matmul_ops.matmul(*variables, transpose_a, transpose_b)
        loss = tf.reduce_sum(product * weights)
    of_a, of_b = tape.gradient(loss, variables)
    wide_a, wide_b = (
        np.float64(a.T if transpose_a else a),
        np.float64(b.T if transpose_b else b),
    )
    np.testing.assert_allclose(product, wide_a @ wide_b, rtol=1e-5, atol=1e-4)
    expected_a, expected_b = weights @ wide_b.T, wide_a.T @ weights
    np.testing.assert_allclose(of_a, expected_a.T if transpose_a else expected_a, atol=1e-4)
    np.testing.assert_allclose(of_b, expected_b.T if transpose_b else expected_b, atol=1e-4)


@each_form
def test_gradients_of_gradients_agree_with_finite_differences(transpose_a, transpose_b):
    a, b = _factors(3, 4, 2, transpose_a, transpose_b)

    def squared_gradient(a, b):
        with tf.GradientTape() as tape:
            tape.watch(a)
            product = matmul_ops.matmul(a, b, transpose_a, transpose_b)
            loss = tf.reduce_sum(product * product)
        return tape.gradient(loss, a)

    computed, numeric = tf.test.compute_gradient(squared_gradient, [a, b], delta=1e-2)
    for one, other in zip(computed, numeric, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=2e-2)


def test_other_dtypes_are_left_to_tensorflow():
    a, b = (tf.cast(one, tf.bfloat16) for one in _factors(3, 4, 2, False, True))
    product = matmul_ops.matmul(a, b, transpose_b=True)
    assert product.dtype == tf.bfloat16
    np.testing.assert_array_equal(product, tf.matmul(a, b, transpose_b=True))


@each_form
def test_shapes_that_do_not_fit_are_refused(transpose_a, transpose_b):
    a, b = _factors(3, 4, 2, transpose_a, transpose_b)
    wrong = b[:, :-1] if transpose_b else b[:-1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="summed over|must be equal"):
        matmul_ops.matmul(a, wrong, transpose_a, transpose_b)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a matrix|rank 2"):
        matmul_ops.matmul(a, b[0], transpose_a, transpose_b)


def test_two_transposes_are_refused():
    ones = tf.ones([2, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not both be true"):
        gen_ops.largeout_matmul(ones, ones, transpose_a=True, transpose_b=True)
