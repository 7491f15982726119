"""The sums of `EmbeddingBag` in training: one op, and one sparse gradient of distinct rows."""

import tensorflow as tf

from tf_largeout.ops import bag_ops, devices


def can_sum(table: tf.Variable) -> bool:
    """Whether `combined_rows` can read `table`: float32, on a device with kernels."""
    return table.dtype == tf.float32 and devices.has_kernels_for(table)


def combined_rows(
    table: tf.Variable, ids: tf.Tensor, weights: tf.Tensor | None, combiner: str
) -> tf.Tensor:
    """The weighted sums of the rows of each bag over the bag's divisor.

    Args:
        table: float32 `[N, dim]`.
        ids: int64 `[B, n]` in `[-1, N)`; -1 stands for no row.
        weights: Float `[B, n]`, or None: 1 each.
        combiner: "sum", "mean" or "sqrtn", see `EmbeddingBag`.

    Returns:
        float32 `[B, dim]`; 0 where the divisor is.
    """
    has_row = tf.cast(ids >= 0, tf.float32)
    differentiate_weights = weights is not None
    weights = (
        has_row if weights is None else tf.where(ids >= 0, tf.cast(weights, tf.float32), 0)
    )
    if combiner == "mean":
        divisor = tf.reduce_sum(weights, axis=1, keepdims=True)
        weights = tf.math.divide_no_nan(weights, divisor)
    elif combiner == "sqrtn":
        divisor = tf.sqrt(tf.reduce_sum(weights * weights, axis=1, keepdims=True))
        weights = tf.math.divide_no_nan(weights, divisor)
    return bag_ops.bag_sums(table, ids, weights, differentiate_weights)
