"""A binary tree over classes by its definition, one class at a time, in float64."""

import heapq

import numpy as np


def least_cost(counts):
    """The least `sum(counts * depth)` of a binary tree: the sum of all merged counts."""
    heap = [float(count) for count in counts]
    heapq.heapify(heap)
    cost = 0.0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        cost += merged
        heapq.heappush(heap, merged)
    return cost


def paths(level_sizes):
    """The path to each leaf: a list of pairs of an inner node and 1 (left) or -1 (right).

    Nodes and leaves are numbered level by level. In a level, leaves come first.
    """
    leaves, inner, number = [], [[]], 0
    for level, size in enumerate(level_sizes):
        assert len(inner) == size
        children = []
        for path in inner:
            children += [[*path, (number, 1)], [*path, (number, -1)]]
            number += 1
        num_inner = level_sizes[level + 1] if level + 1 < len(level_sizes) else 0
        leaves += children[: len(children) - num_inner]
        inner = children[len(children) - num_inner :]
    return leaves


def log_probabilities(features, embeddings, bias, level_sizes, leaf_of_class):
    """`log P(c | h)` `[B, N]`."""
    scores = np.asarray(features, np.float64) @ np.asarray(embeddings, np.float64).T + bias
    of_leaves = paths(level_sizes)
    return np.stack(
        [
            -sum(np.logaddexp(0, -sign * scores[:, node]) for node, sign in of_leaves[leaf])
            for leaf in leaf_of_class
        ],
        axis=1,
    )
