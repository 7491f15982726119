"""The quadratic kernel and the sums of its tree, in float64 from the formulas of the paper.

Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling", sections 3.2, 3.3.
"""

import numpy as np

CHILDREN = 4


def extended(rows, bias=None):
    """Returns float64 rows with their biases appended."""
    rows = np.asarray(rows, np.float64)
    return rows if bias is None else np.column_stack([rows, np.asarray(bias, np.float64)])


def scaled(rows):
    """Returns float64 rows of length 1; rows of zeros stay zeros."""
    rows = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def probabilities(features, rows, bias=None, alpha=100.0, projection=None):
    """Returns q `[batch, num_classes]`, proportional to `alpha <h, w_c>^2 + 1`."""
    features, rows = np.asarray(features, np.float64), extended(rows, bias)
    if bias is not None:
        features = np.column_stack([features, np.ones(len(features))])
    if projection is not None:
        projection = np.asarray(projection, np.float64)
        features, rows = features @ projection.T, rows @ projection.T
    kernel = alpha * np.square(features @ rows.T) + 1
    return kernel / kernel.sum(axis=1, keepdims=True)


def node_classes(num_classes, leaf_size):
    """Returns the classes of each node as ranges: first the leaves, then level by level."""
    leaf_size = min(leaf_size, num_classes)
    span, nodes = leaf_size, []
    while True:
        starts = range(0, num_classes, span)
        nodes += [range(start, min(start + span, num_classes)) for start in starts]
        if len(starts) == 1:
            return nodes
        span *= CHILDREN


def sums(rows, leaf_size):
    """Returns the sum of `w w'` over the classes of each node, `[num_nodes, dim, dim]`."""
    rows = np.asarray(rows, np.float64)
    return np.stack(
        [rows[list(c)].T @ rows[list(c)] for c in node_classes(len(rows), leaf_size)]
    )


def chi_square_deviation(counts, q):
    """Returns Pearson's statistic of counts under q, standardised."""
    counts, expected = np.asarray(counts, np.float64), np.sum(counts) * np.asarray(q)
    statistic = np.sum(np.square(counts - expected) / expected)
    freedom = len(counts) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom + np.sum(1 / expected))
