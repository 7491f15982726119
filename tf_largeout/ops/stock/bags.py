"""Weighted sums of rows of a table; see `ops/bag_ops.py`.

The rows `[batch, num_ids, dim]` are in memory, and the gradient of the table has one row per
id, with repeated ids and -1 for padding.
"""

import tensorflow as tf

from tf_largeout.ops.stock import tables


def largeout_bag_sums(
    embeddings: tf.Tensor, ids: tf.Tensor, weights: tf.Tensor, differentiate_weights: bool
) -> tf.Tensor:
    tables.check(embeddings, "the table")
    ids = tf.convert_to_tensor(ids, tf.int64)
    weights = tf.where(ids != -1, weights, 0.0)
    if not differentiate_weights:
        weights = tf.stop_gradient(weights)
    return tf.einsum("bi,bid->bd", weights, tables.rows_of(embeddings, ids))
