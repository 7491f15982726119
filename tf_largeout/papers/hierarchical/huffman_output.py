"""`HuffmanOutput`: a hierarchical softmax over a binary Huffman tree."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, boolean, whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.papers.hierarchical.binary_tree import (
    BinaryTree,
    huffman_depths,
    level_sizes_of,
)
from tf_largeout.papers.hierarchical.log_probability_output import LogProbabilityOutput
from tf_largeout.papers.hierarchical.tree_matrix import TreeMatrix
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables import initializers


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

    Call arguments:
        features: `[batch, dim]` or `[batch, ..., dim]`; integers are cast to floats.
        training: Whether the step trains.

    Output shape:
        `[batch, ..., num_classes]`, of the layer's compute dtype.

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
        super().__init__(**kwargs)
        self.num_classes = whole_number("num_classes", num_classes, least=2, most=MOST_CLASSES)
        checked = np.ones(self.num_classes) if counts is None else self._checked(counts)
        depths = huffman_depths(checked)
        self._tree = BinaryTree(level_sizes_of(depths))
        self._leaves = np.argsort(np.argsort(depths, kind="stable"))
        self.use_bias = boolean("use_bias", use_bias)
        self.embeddings_initializer = initializers.get_for_embeddings(embeddings_initializer)
        self.embeddings = self.leaf_of_class = None
        self.bias: keras.Variable | None = None

    def build(self, input_shape: Shape) -> None:
        dim, num_nodes = self.width_of(input_shape), self.num_classes - 1
        self.embeddings = self.add_class_weight(
            "embeddings", (num_nodes, dim), self.embeddings_initializer
        )
        if self.use_bias:
            self.bias = self.add_class_weight("bias", (num_nodes,), "zeros")
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
            "num_classes": self.num_classes,
            "counts": None,
            "use_bias": self.use_bias,
            "embeddings_initializer": initializers.serialize(self.embeddings_initializer),
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
