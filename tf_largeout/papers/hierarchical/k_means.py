"""Clusters of rows that point in similar directions."""

import math

import numpy as np
import tensorflow as tf

from tf_largeout.ops.inverted_file_ops import inverted_file_fitted, packed_shapes
from tf_largeout.types import TensorLike

_LARGEST = 2  # times the mean


def k_means_clusters(rows: TensorLike, num_clusters: int) -> np.ndarray:
    """Returns the cluster of each row, by the spherical k-means that fits an `InvertedFile`.

    No cluster has more than twice `num_rows / num_clusters` rows, because the time of a
    function that uses the clusters can depend on the largest one. Larger clusters are clustered
    again. If all their rows are nearly equal, they are divided arbitrarily.

    Args:
        rows: Float `[num_rows, dim]`, finite.
        num_clusters: Approximate number of clusters, at most one per row. Empty clusters are
            dropped, and large clusters become several.

    Returns:
        int64 `[num_rows]`, from 0; each cluster has a row.
    """
    rows = np.asarray(rows, np.float32)
    mean = len(rows) / num_clusters
    clusters = _fitted(rows, num_clusters)
    while True:
        sizes = np.bincount(clusters)
        large = np.flatnonzero(sizes > max(1, _LARGEST * mean))
        if not large.size:
            return clusters
        for cluster in large:
            members = np.flatnonzero(clusters == cluster)
            parts = _parts(rows[members], math.ceil(len(members) / mean))
            new = clusters.max() + parts
            clusters[members] = np.where(parts > 0, new, cluster)


def _parts(rows: np.ndarray, count: int) -> np.ndarray:
    """Divides the rows of a cluster into parts, each at least a tenth smaller."""
    parts = _fitted(rows, count)
    if np.bincount(parts).max() > 0.9 * len(rows):
        return np.arange(len(rows)) * count // len(rows)
    return parts


def _fitted(rows: np.ndarray, num_clusters: int) -> np.ndarray:
    """Returns each row's cluster, from 0. No cluster exceeds eight times the mean size."""
    with tf.device("CPU:0"):
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
        fitted = inverted_file_fitted(tf.constant(rows), None, state)
    sizes = np.diff(fitted[2].numpy().astype(np.int64))
    clusters = np.empty(num_rows, np.int64)
    clusters[fitted[3].numpy()] = np.repeat(np.arange(np.sum(sizes > 0)), sizes[sizes > 0])
    return clusters
