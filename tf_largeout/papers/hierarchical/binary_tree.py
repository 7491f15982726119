"""`BinaryTree`: the shape of a binary tree over the classes, such as a Huffman tree."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


class BinaryTree:
    """A binary tree with inner nodes and leaves, both numbered level by level from the root.

    In each level, the leaves come before the inner nodes. So the number of inner nodes per
    level determines the tree. Inner node p has the edges 2p to its left and 2p + 1 to its right
    child.

    Args:
        level_sizes: Number of inner nodes of each level; the root is level 0.

    Attributes:
        level_sizes: As above.
        num_leaves: One more than the number of inner nodes.
    """

    def __init__(self, level_sizes: Sequence[int]) -> None:
        self.level_sizes = [int(size) for size in level_sizes]
        sizes = np.array([*self.level_sizes, 0])
        self.num_leaves = int(sizes.sum()) + 1
        # The first inner node of each level, and the first edge below each level.
        self._first_nodes = np.cumsum(sizes) - sizes
        self._num_leaves_below = 2 * sizes[:-1] - sizes[1:]
        self._first_leaves = np.cumsum(self._num_leaves_below) - self._num_leaves_below

    def paths(self, leaves: tf.Tensor) -> tf.Tensor:
        """Returns the edges from each leaf up to the root.

        Args:
            leaves: int64 `[...]`, numbers of leaves, or -1.

        Returns:
            int64 `[..., number of levels]`: the edges, then -1; only -1 for the leaf -1.
        """
        none = tf.constant(-1, tf.int64)
        shifts = 2 * self._first_nodes[:-1] - self._first_leaves
        edges = leaves + _of_range(leaves, self._first_leaves, shifts)
        edges = tf.where(leaves < 0, none, edges)
        path = [edges]
        # From the inner nodes of each level to the edges above them; the root has none.
        shifts = 2 * self._first_nodes[:-2] + self._num_leaves_below[:-1]
        shifts = np.concatenate([[0], shifts - self._first_nodes[1:-1]])
        for _ in self.level_sizes[1:]:
            nodes = edges // 2
            edges = nodes + _of_range(nodes, self._first_nodes[:-1], shifts)
            edges = tf.where(nodes <= 0, none, edges)
            path.append(edges)
        return tf.stack(path, axis=-1)

    def sums(self, edges: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the values of the edges from the root to each leaf.

        Args:
            edges: Float `[number of edges, B]`.

        Returns:
            Float `[num_leaves, B]`.
        """
        of_leaves, of_inner = [], tf.zeros_like(edges[:1])
        ends = zip(self._first_nodes, self.level_sizes, self._num_leaves_below, strict=False)
        for first, size, num_leaves in ends:
            below = edges[2 * first : 2 * (first + size)] + tf.repeat(of_inner, 2, axis=0)
            of_leaves.append(below[:num_leaves])
            of_inner = below[num_leaves:]
        return tf.concat(of_leaves, axis=0)


def _of_range(numbers: tf.Tensor, firsts: np.ndarray, values: np.ndarray) -> tf.Tensor:
    """Returns the value of the range of each number, for the first number of each range."""
    place = tf.searchsorted(firsts, tf.reshape(numbers, [-1]), side="right") - 1
    return tf.reshape(tf.gather(values, tf.maximum(place, 0)), tf.shape(numbers))


def huffman_depths(counts: np.ndarray) -> np.ndarray:
    """Returns the depths of the leaves in a Huffman tree, which minimizes `sum(counts depth)`.

    Args:
        counts: Positive `[N]`, for at least two classes.

    Returns:
        int64 `[N]`.

    References:
        Huffman 1952, "A method for the construction of minimum-redundancy codes".
    """
    order = np.argsort(counts, kind="stable")
    leaves, num_leaves = counts[order].tolist(), len(counts)
    inner: list[float] = []  # in ascending order, because merges are
    parents = np.empty(2 * num_leaves - 2, np.int64)  # of the leaves, then the inner nodes
    leaf = node = 0
    for merged in range(num_leaves - 1):
        total = 0.0
        for _ in range(2):
            if node == merged or (leaf < num_leaves and leaves[leaf] <= inner[node]):
                parents[leaf] = merged
                total += leaves[leaf]
                leaf += 1
            else:
                parents[num_leaves + node] = merged
                total += inner[node]
                node += 1
        inner.append(total)
    of_inner = [0] * (num_leaves - 1)
    above = parents[num_leaves:].tolist()
    for node in range(num_leaves - 3, -1, -1):
        of_inner[node] = of_inner[above[node]] + 1
    depths = np.empty(num_leaves, np.int64)
    depths[order] = np.array(of_inner)[parents[:num_leaves]] + 1
    return depths


def level_sizes_of(depths: np.ndarray) -> list[int]:
    """Returns the number of inner nodes of each level, for the depths of all leaves."""
    sizes = [1]
    for num_leaves in np.bincount(depths)[1:-1].tolist():
        sizes.append(2 * sizes[-1] - num_leaves)
    return sizes
