"""`HuffmanOutput`: a hierarchical softmax over a binary Huffman tree."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, whole_number
from tf_largeout.classes import blockwise
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassMatrix, ClassStatistics
from tf_largeout.papers.hierarchical.clustered_matrix import LogProbabilityScorer
from tf_largeout.papers.hierarchical.hierarchical_output import LogProbabilityOutput
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables.replicas import local_variable


class BinaryTree:
    """A binary tree with inner nodes and leaves, both numbered level by level from the root.

    In each level, the leaves come before the inner nodes. So the number of inner nodes per
    level, `level_sizes`, determines the tree. Inner node p has the edges 2p to its left and 2p
    + 1 to its right child.
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
        """Returns the edges from each leaf `[...]` up to the root, `[..., number of levels]`.

        The edges are padded with -1; the leaf -1 has only -1.
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

        They are `[num_leaves, B]` for `edges` `[number of edges, B]`.
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

    See Huffman 1952, "A method for the construction of minimum-redundancy codes". `counts` are
    positive, of at least two classes.
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


class TreeMatrix(LogProbabilityScorer):
    """Classes whose score is the log-probability of the path to a leaf of a binary tree.

        log P(c | h) = sum over the inner nodes n of the path of log sigmoid(s (<v_n, h> + b_n))

    where s is 1 if the path goes to the left child of n, and -1 otherwise. `nodes` has the
    `v_n` and `b_n`; the classes have no rows. Scoring a few classes per example takes O(depth)
    time. Scoring all of them takes O(num_classes) time, with memory for some `[batch,
    num_classes]` tensors.
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
        """Returns log-probabilities of classes `[B, n]`, and None: their ranks are not known.

        The gradient of the nodes has one row per node of the paths.
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


@keras.saving.register_keras_serializable(package="tf_largeout")
class HuffmanOutput(LogProbabilityOutput):
    """Log-probabilities of `num_classes` classes by the decisions in a binary Huffman tree.

        P(c | h) = product over the nodes n of the path to c of sigmoid(s (<v_n, h> + b_n))

    where h are the features, and s is 1 if the path goes to the left child of n and -1
    otherwise. The probabilities sum to 1 exactly. With `HierarchicalSoftmaxLoss`, a training
    step takes O(batch dim depth) time, about `log2(num_classes)` decisions per label, and
    frequent classes have short paths. No classes are sampled, and the loss is exact.

    This is the hierarchical softmax of word2vec, for comparisons. In a tree of frequencies, the
    classes below a node have nothing in common but their frequency. In the same time, a
    `LargeOutput` with negatives learned more; see lab/vijayanarasimhan/README.md.

    The layer returns log-probabilities, as a `HierarchicalOutput` does. `evaluate`, `predict`
    and `top_k` are exact and need memory for several `[batch, num_classes]` tensors, so use
    small batches for many classes. In training, `Perplexity` is exact, and rank metrics are
    NaN. The classes have no rows, so `class_embeddings`, indexes and `resize_classes` raise an
    error.

    Args:
        num_classes: Number of classes `N`, from 2 to 2^31 - 2.
        counts: Positive numbers `[num_classes]`, how often each class occurs in the training
            data. None, the default, gives a balanced tree. The config does not store them, only
            the shape of the tree. The classes of the leaves are saved with the weights.
        use_bias: Whether each node has a bias.
        embeddings_initializer: Initializer of the vectors of the nodes. By default uniform with
            rows of length 1/2, as in `LargeOutput`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments and the shape of the output are those of `ClassOutput`.

    Attributes:
        embeddings: Keras variable `[num_classes - 1, dim]`, one row per inner node.
        bias: Keras variable `[num_classes - 1]`, or None.
        leaf_of_class: int64 Keras variable `[num_classes]`.

    Raises:
        ValueError: If there are fewer than two classes, a count is not a positive finite
            number, `activity_regularizer` is given, or the input has fewer than two dimensions
            or an unknown last dimension.

    References:
        Morin and Bengio 2005, "Hierarchical probabilistic neural network language model";
        Mikolov et al. 2013, "Distributed representations of words and phrases and their
        compositionality", section 2.1.
    """

    def __init__(
        self,
        num_classes: int,
        counts: TensorLike | None = None,
        use_bias: bool = True,
        embeddings_initializer: InitializerLike | None = None,
        **kwargs: Any,
    ) -> None:
        whole_number("num_classes", num_classes, least=2, most=MOST_CLASSES)
        super().__init__(num_classes, use_bias, embeddings_initializer, **kwargs)
        checked = np.ones(self.num_classes) if counts is None else self._checked(counts)
        depths = huffman_depths(checked)
        self._tree = BinaryTree(level_sizes_of(depths))
        self._leaves = np.argsort(np.argsort(depths, kind="stable"))
        self.leaf_of_class: keras.Variable = None

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        self.embeddings, self.bias = self.add_rows("", self.num_classes - 1, dim)
        self.leaf_of_class = self.add_constant("leaf_of_class", self._leaves)
        nodes = ClassMatrix(self.embeddings, self.bias, self.name)
        self.class_matrix = TreeMatrix(nodes, self._tree, self.leaf_of_class, self.name)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        raise NotImplementedError(
            f"`resize_classes` does not support the HuffmanOutput '{self.name}', because its "
            "tree has no leaves for new classes. Build a HuffmanOutput with the counts of all "
            "classes, and train it."
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "counts": None,
            "level_sizes": self._tree.level_sizes,
        }

    @classmethod
    def from_config(cls, config: Config) -> "HuffmanOutput":
        config = dict(config)
        level_sizes = config.pop("level_sizes")
        layer = super().from_config(config)
        # Until the weights are loaded, the classes are at the leaves in the order of their ids.
        layer._tree, layer._leaves = BinaryTree(level_sizes), np.arange(layer.num_classes)
        return layer

    def _checked(self, counts: TensorLike) -> np.ndarray:
        """Returns `counts` as an array, or raises a ValueError."""
        found = np.asarray(counts)
        if found.shape != (self.num_classes,) or found.dtype.kind not in "iuf":
            raise ValueError(
                f"`counts` must be {self.num_classes} positive numbers, one per class. "
                f"Received: an array of shape {found.shape} and dtype {found.dtype}."
            )
        wrong = ~(np.isfinite(found) & (found > 0))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                "`counts` must be positive and finite, because each class needs a leaf of the "
                f"tree. Received: counts[{first}]={found[first]}. For classes without "
                "examples, pass np.maximum(counts, 1)."
            )
        return found
