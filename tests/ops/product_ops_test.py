import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import class_scan as reference
from tf_largeout.ops import product_ops

TRANSPOSES = list(itertools.product([False, True], repeat=2))


def factors(rows=37, depth=50, columns=70, transpose_a=False, transpose_b=False):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(rows, depth)), rng.normal(size=(depth, columns))
    a, b = (np.float32(x.T if t else x) for x, t in ((a, transpose_a), (b, transpose_b)))
    return a, b


def product_and_gradients(a, b, d_product, *transposes):
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        product = product_ops.rounded_product(a, b, *transposes)
        loss = tf.reduce_sum(product * d_product)
    return product, *tape.gradient(loss, [a, b])


def allclose(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("transposes", TRANSPOSES)
@pytest.mark.parametrize("compiled", [False, True])
def test_products_and_gradients_use_rounded_factors(
    for_all_product_levels, transposes, compiled
):
    a, b = factors(transpose_a=transposes[0], transpose_b=transposes[1])
    d_product = np.random.default_rng(1).normal(size=(37, 70)).astype(np.float32)
    run = tf.function(product_and_gradients) if compiled else product_and_gradients
    product, d_a, d_b = run(a, b, d_product, *transposes)
    a, b, d = (reference.bfloat16(x) for x in (a, b, d_product))
    a, b = (x.T if t else x for x, t in zip((a, b), transposes, strict=True))
    allclose(product, a @ b)
    allclose(d_a, (d @ b.T).T if transposes[0] else d @ b.T)
    allclose(d_b, (a.T @ d).T if transposes[1] else a.T @ d)


@pytest.mark.parametrize("transposes", TRANSPOSES)
def test_gradients_equal_finite_differences(transposes):
    # Whole numbers are multiplied exactly, and the product is linear in each factor.
    rng = np.random.default_rng(2)
    a, b = (np.round(4 * x) for x in factors(3, 5, 4, *transposes))
    d_product = np.float32(rng.integers(-4, 5, size=(3, 4)))
    gradients = [x.numpy() for x in product_and_gradients(a, b, d_product, *transposes)[1:]]
    for which, gradient in enumerate(gradients):
        for place in np.ndindex(gradient.shape):
            values = []
            for change in (1, -1):
                changed = [a.copy(), b.copy()]
                changed[which][place] += change
                product = product_ops.rounded_product(*changed, *transposes)
                values.append(np.sum(product * d_product))
            assert gradient[place] == (values[0] - values[1]) / 2


def test_the_product_of_a_part_is_bit_identical():
    a, b = factors(300, 128, 200)
    whole = product_ops.rounded_product(a, b).numpy()
    np.testing.assert_array_equal(product_ops.rounded_product(a[:7], b), whole[:7])
    np.testing.assert_array_equal(product_ops.rounded_product(a, b[:, :90]), whole[:, :90])


def test_mismatched_shapes_raise_an_error():
    ones = tf.ones
    message = r"columns.*3 for a \[2,3\].*4 for b"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        product_ops.rounded_product(ones([2, 3]), ones([4, 5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"b must be a matrix, got \[4\]"):
        product_ops.rounded_product(ones([2, 3]), ones([4]))
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        tf.function(product_ops.rounded_product)(ones([2, 3]), ones([2, 3]))


def test_shapes_are_inferred_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([5, 8])])
    def product(a, b):
        result = product_ops.rounded_product(a, b, transpose_b=True)
        assert result.shape.as_list() == [None, 5]
        return result

    assert product(tf.ones([3, 8]), tf.ones([5, 8])).shape == (3, 5)
