"""Matrix products with bfloat16 operands."""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def rounded_product(
    a: tf.Tensor, b: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """Multiplies two float32 matrices after rounding their elements to bfloat16.

    Sums are float32. The gradients are computed by the same kind of product. On a CPU with AMX,
    it is several times as fast as a float32 product. Other CPUs round in the same way, but take
    longer than for a float32 product. Results are bit-identical for any number of threads.
    `a` is `[rows, depth]` and `b` is `[depth, columns]`, unless transposed.
    """
    return gen_ops.largeout_rounded_product(a, b, transpose_a, transpose_b)


@tf.RegisterGradient("LargeoutRoundedProduct")
def _rounded_product_gradient(
    op: tf.Operation, d_product: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    a, b = op.inputs
    transpose_a, transpose_b = op.get_attr("transpose_a"), op.get_attr("transpose_b")
    if transpose_a:
        d_a = rounded_product(b, d_product, transpose_b, True)
    else:
        d_a = rounded_product(d_product, b, False, not transpose_b)
    if transpose_b:
        d_b = rounded_product(d_product, a, True, transpose_a)
    else:
        d_b = rounded_product(a, d_product, not transpose_a, False)
    return d_a, d_b
