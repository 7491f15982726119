"""Products of matrices on all threads."""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def matmul(
    a: tf.Tensor, b: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """`tf.matmul` of two matrices, on all threads of the CPU whatever their size.

    TensorFlow multiplies on one thread where factors and product fit into a few second caches:
    256 rows of features with 1,024 rows of classes, say. Only the product of float32 matrices
    differs, and only where TensorFlow has no GPU; any other is `tf.matmul`. The results are
    the same to the bit on any number of threads.

    Args:
        a: Float `[rows, depth]`, or `[depth, rows]` if it is to be transposed.
        b: Of the same dtype, `[depth, width]`, or `[width, depth]` if it is to be transposed.
        transpose_a: Whether `a` is to be transposed.
        transpose_b: Whether `b` is; not both are.

    Returns:
        `[rows, width]`, of the dtype of the factors.

    Raises:
        ValueError: If the shapes do not fit.
        tf.errors.InvalidArgumentError: If they do not fit and are known only in the step, or
            both factors are to be transposed.
    """
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    if a.dtype != tf.float32 or tf.config.list_logical_devices("GPU"):
        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return gen_ops.largeout_matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


@tf.RegisterGradient("LargeoutMatmul")
def _matmul_gradient(op: tf.Operation, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    a, b = op.inputs
    if op.get_attr("transpose_a"):
        return matmul(b, gradient, transpose_b=True), matmul(a, gradient)
    if op.get_attr("transpose_b"):
        return matmul(gradient, b), matmul(gradient, a, transpose_a=True)
    return matmul(gradient, b, transpose_b=True), matmul(a, gradient, transpose_a=True)
