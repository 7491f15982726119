"""Clusters of rows that point the same way."""

import numpy as np
import tensorflow as tf

from tf_largeout.ops.inverted_file_ops import inverted_file_fitted, packed_shapes
from tf_largeout.types import TensorLike


def k_means_clusters(rows: TensorLike, num_clusters: int) -> np.ndarray:
    """The cluster of each row, by the spherical k-means that fits an `InvertedFile`.

    No cluster has more than eight times `num_rows / num_clusters` rows, and none is empty.

    Args:
        rows: Float `[num_rows, dim]`, finite.
        num_clusters: Number of clusters, at most one per row. Where some would be empty, there
            are fewer.

    Returns:
        int64 `[num_rows]`, from 0.
    """
    with tf.device("CPU:0"):
        rows = tf.cast(tf.convert_to_tensor(rows), tf.float32)
        num_rows, dim = rows.shape
        codes_shape, scales_shape = packed_shapes(num_rows, dim)
        state = [
            tf.zeros([num_clusters, dim]),
            tf.zeros([num_clusters]),
            tf.zeros([num_clusters + 1], tf.uint32),
            tf.zeros([num_rows], tf.uint32),
            tf.zeros(codes_shape, tf.uint8),
            tf.zeros(scales_shape),
            tf.constant([0, -1], tf.int64),
        ]
        fitted = inverted_file_fitted(rows, None, state)
    sizes = np.diff(fitted[2].numpy().astype(np.int64))
    clusters = np.empty(num_rows, np.int64)
    clusters[fitted[3].numpy()] = np.repeat(np.arange(np.sum(sizes > 0)), sizes[sizes > 0])
    return clusters
