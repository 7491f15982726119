"""Matrix products with operands that are rounded to bfloat16; see `ops/product_ops.py`."""

import tensorflow as tf

from tf_largeout.ops.stock import errors


def rounded(matrix: tf.Tensor) -> tf.Tensor:
    """Rounds float32 numbers to the nearest bfloat16."""
    return tf.cast(tf.cast(matrix, tf.bfloat16), tf.float32)


def largeout_rounded_product(
    a: tf.Tensor, b: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """Returns the product of rounded matrices; gradients are rounded products, too."""
    a, b = errors.tensor(a, tf.float32, "a"), errors.tensor(b, tf.float32, "b")
    for name, matrix in (("a", a), ("b", b)):
        if matrix.shape.rank not in (2, None):
            errors.fail(f"{name} must be a matrix, got {errors.sizes(matrix)}")
    if tf.executing_eagerly() and a.shape[not transpose_a] != b.shape[bool(transpose_b)]:
        errors.fail(
            "the columns of a must be as many as the rows of b, got "
            f"{a.shape[not transpose_a]} for a {errors.sizes(a)} and "
            f"{b.shape[bool(transpose_b)]} for b {errors.sizes(b)}"
        )

    @tf.custom_gradient
    def product(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            multiply = largeout_rounded_product
            if transpose_a:
                d_a = multiply(b, d, transpose_b, True)
            else:
                d_a = multiply(d, b, False, not transpose_b)
            if transpose_b:
                return d_a, multiply(d, a, True, transpose_a)
            return d_a, multiply(a, d, not transpose_a, False)

        return tf.matmul(rounded(a), rounded(b), transpose_a, transpose_b), gradient

    return product(a, b)
