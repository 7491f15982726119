"""Matrix products with operands that are rounded to bfloat16; see `ops/product_ops.py`."""

import tensorflow as tf


def rounded(matrix: tf.Tensor) -> tf.Tensor:
    """Rounds float32 numbers to the nearest bfloat16."""
    return tf.cast(tf.cast(matrix, tf.bfloat16), tf.float32)


def largeout_rounded_product(
    a: tf.Tensor, b: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
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
