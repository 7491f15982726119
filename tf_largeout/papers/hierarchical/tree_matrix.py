"""`TreeMatrix`: classes at the leaves of a binary tree, whose scores are log-probabilities."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.papers.hierarchical.binary_tree import BinaryTree
from tf_largeout.papers.hierarchical.log_probabilities import LogProbabilityScorer
from tf_largeout.variables.replicas import local_variable


class TreeMatrix(LogProbabilityScorer):
    """Classes whose score is the log-probability of the path to a leaf of a binary tree.

        log P(c | h) = sum over the inner nodes n of the path of log sigmoid(s (<v_n, h> + b_n))

    where s is 1 if the path goes to the left child of n, and -1 otherwise. The classes have no
    rows. Scoring a few classes per example takes O(depth) time. Scoring all of them takes
    O(num_classes) time, with memory for some `[batch, num_classes]` tensors.

    Args:
        nodes: The `ClassMatrix` of the `v_n` and `b_n`.
        tree: The tree.
        leaf_of_class: int64 Keras variable `[num_classes]`.
        owner: Name of the layer, for messages.
    """

    def __init__(
        self, nodes: ClassMatrix, tree: BinaryTree, leaf_of_class: keras.Variable, owner: str
    ) -> None:
        super().__init__(tree.num_leaves, nodes.dim, nodes.has_bias, owner)
        self._nodes, self._tree, self._leaf_of_class = nodes, tree, leaf_of_class

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        raise self._no_rows()

    def values(self) -> tf.Tensor:
        raise self._no_rows()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        logits = tf.cast(self._nodes.logits(features), tf.float32)
        columns = tf.transpose(tf.reshape(logits, [-1, self.num_classes - 1]))
        both = tf.stack([tf.math.log_sigmoid(columns), tf.math.log_sigmoid(-columns)], axis=1)
        edges = tf.reshape(both, [2 * (self.num_classes - 1), -1])
        found = tf.gather(self._tree.sums(edges), self._leaf_of_class.value)
        shape = tf.concat([tf.shape(features)[:-1], [self.num_classes]], axis=0)
        found = tf.cast(tf.reshape(tf.transpose(found), shape), features.dtype)
        return tf.ensure_shape(found, [*features.shape[:-1], self.num_classes])

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.class_log_probabilities(features, ids)[0]

    def class_log_probabilities(
        self, features: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, None]:
        """Returns log-probabilities of each example's own classes; their ranks are not known.

        The gradient of the nodes has one row per node of the paths.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.

        Returns:
            `(log_probabilities, None)`: float32 `[B, n]`, the lowest float at padding.
        """
        leaf_of_class, shape = local_variable(self._leaf_of_class), tf.shape(ids)
        leaves = tf.where(ids >= 0, tf.gather(leaf_of_class, tf.maximum(ids, 0)), -1)
        edges = self._tree.paths(leaves)
        nodes = tf.reshape(tf.where(edges >= 0, edges // 2, -1), [shape[0], -1])
        logits = tf.reshape(self._nodes.dots(features, nodes), tf.shape(edges))
        signed = tf.where(edges % 2 == 0, logits, -logits)
        steps = tf.where(edges >= 0, tf.math.log_sigmoid(tf.where(edges >= 0, signed, 0)), 0)
        return tf.where(ids >= 0, tf.reduce_sum(steps, axis=-1), tf.float32.min), None

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """Like `ClassScorer.fold_logits`, with all classes in one block."""
        scores = self.logits(tf.cast(features, tf.float32))
        if classes is None:
            return function(state, scores, tf.range(self.num_classes, dtype=tf.int64))
        return function(state, tf.gather(scores, classes, axis=1), classes)

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`. The `log_partition` is 0: probabilities sum to 1."""
        self._require_float32(compute_dtype)
        true_logits = tf.where(labels >= 0, self.dots(features, labels), 0)

        def ranks() -> tf.Tensor:
            scores = self.logits(tf.cast(tf.stop_gradient(features), tf.float32))
            own = tf.gather(scores, tf.maximum(labels, 0), batch_dims=1)
            ids = tf.range(self.num_classes, dtype=tf.int64)

            def in_one_block(function: BlockFunction, state: Any) -> Any:
                return function(state, scores, ids)

            return blockwise.ranks(in_one_block, labels, own, self.num_classes)

        return ClassStatistics(tf.zeros(tf.shape(labels)[:1]), true_logits, ranks)

    def _no_rows(self) -> ValueError:
        return ValueError(
            f"Layer '{self._owner}' is a binary tree, whose classes have no rows: each class "
            "is a path of nodes. Use the layer's `top_k` instead of an index."
        )
