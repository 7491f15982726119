"""Weighted sums of rows of a table; see `ops/bag_ops.py`.

The rows `[batch, num_ids, dim]` are in memory. The gradient of the table has one row per id,
merged as in `rows`.
"""

from typing import Any

import tensorflow as tf

from tf_largeout.ops import places
from tf_largeout.ops.stock import errors, tables
from tf_largeout.ops.stock.rows import largeout_merge_rows


def largeout_bag_sums(
    embeddings: tf.Tensor, ids: tf.Tensor, weights: tf.Tensor, differentiate_weights: bool
) -> tf.Tensor:
    """Returns the sums, `[batch, dim]`.

    Where errors cannot be raised, the sum with an id out of range is NaN.
    """
    tables.check(embeddings, "embeddings", shape=[None, None])
    ids = errors.tensor(ids, tf.int64, "ids")
    weights = errors.tensor(weights, tf.float32, "weights")
    errors.check_shape(ids, "ids", None, None)
    errors.check_shape(weights, "weights", *ids.shape)
    num_rows = tables.num_rows(embeddings)
    ids = errors.class_ids(ids, num_rows, "ids")
    with places.scope_of(ids):
        is_id = ids != -1
        exists = (ids >= 0) & (ids < num_rows)
        read_ids, flat_ids = tf.where(is_id, ids, 0), tf.reshape(ids, [-1])

    # The handle is read from the outer scope: as an argument it loses its dtype and shape.
    @tf.custom_gradient
    def sums(weights: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, Any]:
        rows = tables.gather(embeddings, read_ids)
        weights = tf.where(exists, weights, tf.where(is_id, float("nan"), 0.0))

        def gradient(d_sums: tf.Tensor) -> tuple[tf.Tensor | None, tf.IndexedSlices]:
            d_weights = None
            if differentiate_weights:
                d_weights = tf.where(is_id, tf.linalg.matvec(rows, d_sums), 0.0)
            # As a product `*`, TensorFlow 2.21 ends the process for constants without examples.
            d_rows = tf.matmul(weights[..., tf.newaxis], d_sums[:, tf.newaxis])
            d_rows = tf.reshape(d_rows, tf.stack([tf.size(ids), tf.shape(rows)[2]]))
            d_rows, row_ids = largeout_merge_rows(d_rows, flat_ids)
            return d_weights, tf.IndexedSlices(d_rows, row_ids, tables.shape_of(embeddings))

        return tf.linalg.matvec(rows, weights, transpose_a=True), gradient

    return sums(weights, embeddings)
