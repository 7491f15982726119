"""`HierarchicalOutput`: a two-level softmax over clusters and classes."""

import heapq
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, boolean, whole_number
from tf_largeout.classes import probabilities
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassMatrix
from tf_largeout.classes.probabilities import Probabilities, Scores
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.ops.inverted_file_ops import inverted_file_fitted, packed_shapes
from tf_largeout.papers.hierarchical.clustered_matrix import ClusteredMatrix
from tf_largeout.papers.hierarchical.hierarchical_softmax_loss import LogProbabilityTag
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables import initializers

_LARGEST = 2  # times the mean


class LogProbabilityOutput(ClassOutput):
    """An output layer whose scores are log-probabilities, which a hierarchy of classes gives.

    Its `class_matrix` is a `LogProbabilityScorer`.

    Args:
        num_classes: Number of classes.
        use_bias: Whether the rows of `add_rows` have biases.
        embeddings_initializer: Initializer of the rows of `add_rows`.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    tag_class = LogProbabilityTag

    def __init__(
        self,
        num_classes: int,
        use_bias: bool,
        embeddings_initializer: InitializerLike | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.use_bias = boolean("use_bias", use_bias)
        self.embeddings_initializer = initializers.get_for_embeddings(embeddings_initializer)
        self.embeddings: keras.Variable = None
        self.bias: keras.Variable | None = None

    def probabilities(
        self, scores: Scores, absolute: bool | None = None
    ) -> Probabilities | None:
        """See `ClassOutput`. The scores are log-probabilities already."""
        if scores == "sigmoid":
            raise ValueError(
                f"`scores='sigmoid'` needs logits, but the scores of layer '{self.name}' are "
                "log-probabilities. Use scores='softmax'."
            )
        if scores == "softmax":
            return probabilities.exponential
        return super().probabilities(scores, absolute)

    def add_rows(
        self, prefix: str, count: int, dim: int
    ) -> tuple[keras.Variable, keras.Variable | None]:
        """Adds and returns embeddings `[count, dim]` and biases `[count]`, or None."""
        embeddings = self.add_class_weight(
            f"{prefix}embeddings", (count, dim), self.embeddings_initializer
        )
        if not self.use_bias:
            return embeddings, None
        return embeddings, self.add_class_weight(f"{prefix}bias", (count,), "zeros")

    def add_constant(self, name: str, values: np.ndarray) -> keras.Variable:
        """Adds an int64 weight that is saved but not trained."""
        values = values.astype(np.int64)
        return self.add_class_weight(
            name,
            values.shape,
            initializers.constant_initializer(values),
            dtype="int64",
            trainable=False,
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "use_bias": self.use_bias,
            "embeddings_initializer": initializers.serialize(self.embeddings_initializer),
        }


@keras.saving.register_keras_serializable(package="tf_largeout")
class HierarchicalOutput(LogProbabilityOutput):
    """Log-probabilities of `num_classes` classes by a two-level softmax.

        P(c | h) = P(k | h) P(c | k, h)

    where h are the features and k is the cluster of class c. Each factor is a softmax of inner
    products with h plus biases: the first over the clusters, the second over the classes of the
    cluster. The probabilities sum to 1 exactly. With `HierarchicalSoftmaxLoss`, a training step
    scores the clusters, and the classes in the clusters of the labels. This takes O(batch
    sqrt(num_classes) dim) time. No classes are sampled, and the loss is exact. The disadvantage
    is that a single score determines the total probability of all classes of a cluster. So
    similar classes should be in the same cluster.

    The layer returns log-probabilities. `predict` returns them, Keras's losses and metrics use
    them as logits, and `top_k`, `evaluate` and our metrics rank all classes by them, exactly.
    In addition to its row, each class takes 16 bytes for its cluster.

    ```python
    vectors = np.random.default_rng(0).normal(size=(10_000, 64))
    head = tflo.layers.HierarchicalOutput(
        10_000, clusters=tflo.layers.HierarchicalOutput.clusters_of(vectors)
    )
    model = keras.Sequential([encoder, head])
    model.compile(tflo.optimizers.LazyAdam(3e-3), tflo.losses.HierarchicalSoftmaxLoss())
    ```

    Args:
        num_classes: Number of classes `N`, from 1 to 2^31 - 2.
        num_clusters: Number of clusters, at most `num_classes`. The default is the number in
            `clusters`, or else about `sqrt(num_classes)`, with which a step takes the least
            time.
        clusters: Integers `[num_classes]`, the cluster of each class, from 0. No cluster may be
            empty. A step scores all classes of the labels' clusters, so no cluster should be
            much larger than the others. None, the default, divides the ids into consecutive
            ranges of equal size. If ids are sorted by frequency, classes of about the same
            frequency then share a cluster. The config does not store an array; the clusters
            are saved with the weights.
        use_bias: Whether each class and each cluster has a bias.
        embeddings_initializer: Initializer of the rows of classes and clusters. By default
            uniform with rows of length 1/2, as in `LargeOutput`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments and the shape of the output are those of `ClassOutput`.

    Attributes:
        embeddings: Keras variable `[num_classes, dim]`, one row per class.
        bias: Keras variable `[num_classes]`, or None.
        cluster_embeddings: Keras variable `[num_clusters, dim]`, one row per cluster.
        cluster_bias: Keras variable `[num_clusters]`, or None.
        cluster_of_class: int64 Keras variable `[num_classes]`.

    Raises:
        ValueError: If an argument is not valid, `activity_regularizer` is given, or the input
            has fewer than two dimensions or an unknown last dimension.

    References:
        Goodman 2001, "Classes for fast maximum entropy training"; Morin and Bengio 2005,
        "Hierarchical probabilistic neural network language model".
    """

    def __init__(
        self,
        num_classes: int,
        num_clusters: int | None = None,
        clusters: TensorLike | None = None,
        use_bias: bool = True,
        embeddings_initializer: InitializerLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, use_bias, embeddings_initializer, **kwargs)
        most = self.num_classes
        num_clusters = whole_number("num_clusters", num_clusters, or_none=True, most=most)
        self._clusters = None
        if clusters is not None:
            self._clusters = _checked_clusters(clusters, most, num_clusters)
            num_clusters = int(self._clusters.max()) + 1
        self.num_clusters = num_clusters or _default_num_clusters(most)
        self.cluster_embeddings: keras.Variable = None
        self.cluster_of_class: keras.Variable = None
        self.cluster_bias: keras.Variable | None = None

    @staticmethod
    def clusters_of(vectors: TensorLike, num_clusters: int | None = None) -> np.ndarray:
        """Computes clusters of classes with similar vectors, by spherical k-means.

        Use vectors that are known before training, such as embeddings of texts that describe
        the classes, or the class embeddings of another model. Clusters of more than twice the
        mean size are clustered again, so that a step costs about as much as with equal
        clusters.

        Args:
            vectors: Float `[num_classes, dim]`, finite, one per class.
            num_clusters: Approximate number of clusters; by default `sqrt(num_classes)`.

        Returns:
            int64 `[num_classes]`, for the argument `clusters`.

        Raises:
            ValueError: If the vectors are not a finite matrix, or `num_clusters` is out of
                range.
        """
        vectors = np.asarray(vectors)
        if vectors.ndim != 2 or vectors.size == 0 or not np.all(np.isfinite(vectors)):
            raise ValueError(
                "`vectors` must be a matrix of finite numbers, one row per class. Received: an "
                f"array of shape {vectors.shape} and dtype {vectors.dtype}."
            )
        num_clusters = whole_number(
            "num_clusters", num_clusters, or_none=True, most=len(vectors)
        )
        return k_means_clusters(vectors, num_clusters or _default_num_clusters(len(vectors)))

    def why_not_compiled(self) -> str | None:
        return super().why_not_compiled() or (
            "its clusters have different sizes, and XLA must know sizes when it compiles. Use "
            "a LargeOutput, or leave jit_compile=True out."
        )

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        self.embeddings, self.bias = self.add_rows("", self.num_classes, dim)
        of_clusters = self.add_rows("cluster_", self.num_clusters, dim)
        self.cluster_embeddings, self.cluster_bias = of_clusters
        clusters = self._clusters
        if clusters is None:
            clusters = np.arange(self.num_classes) * self.num_clusters // self.num_classes
        members, offsets = _by_cluster(clusters, self.num_clusters)
        self.cluster_of_class = self.add_constant("cluster_of_class", clusters)
        self._members = self.add_constant("cluster_members", members)
        self._offsets = self.add_constant("cluster_offsets", offsets)
        self.class_matrix = ClusteredMatrix(
            self.embeddings,
            self.bias,
            ClassMatrix(self.cluster_embeddings, self.cluster_bias, self.name),
            self.cluster_of_class,
            self._members,
            self._offsets,
            self.name,
        )
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def changed_attributes(
        self, change: ClassChange
    ) -> list[tuple[keras.layers.Layer, str, int]]:
        changed = super().changed_attributes(change)
        _, left = self._clusters_after(change)
        return [*changed, (self, "num_clusters", len(left))]

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        clusters, left = before._clusters_after(change)
        of_clusters = ClassChange(before.num_clusters, self.num_clusters, left)
        change.move_rows(before.embeddings, self.embeddings, new_rows)
        of_clusters.move_rows(before.cluster_embeddings, self.cluster_embeddings)
        moved = [(self.embeddings, change), (self.cluster_embeddings, of_clusters)]
        if self.use_bias:
            change.move_rows(before.bias, self.bias)
            of_clusters.move_rows(before.cluster_bias, self.cluster_bias)
            moved += [(self.bias, change), (self.cluster_bias, of_clusters)]
        members, offsets = _by_cluster(clusters, self.num_clusters)
        self.cluster_of_class.assign(clusters)
        self._members.assign(members)
        self._offsets.assign(offsets)
        return moved

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_clusters": self.num_clusters,
            "clusters": None,
        }

    def _clusters_after(self, change: ClassChange) -> tuple[np.ndarray, np.ndarray]:
        """Assigns new classes to the smallest clusters, and removes empty clusters.

        The row of a cluster fits its old classes. So if a cluster has lost all its classes, no
        new class is assigned to it, unless all clusters have lost all their classes. The result
        is the new cluster of each class, and the old numbers of the remaining clusters.
        """
        of_kept = self.cluster_of_class.numpy()[change.kept]
        sizes = np.bincount(of_kept, minlength=self.num_clusters)
        open_clusters = np.flatnonzero(sizes) if len(of_kept) else np.arange(len(sizes))
        smallest = [(int(sizes[cluster]), int(cluster)) for cluster in open_clusters]
        heapq.heapify(smallest)
        of_new = np.empty(change.num_new, np.int64)
        for i in range(change.num_new):
            size, of_new[i] = smallest[0]
            heapq.heapreplace(smallest, (size + 1, int(of_new[i])))
        left, clusters = np.unique(np.concatenate([of_kept, of_new]), return_inverse=True)
        return clusters, left


def _by_cluster(clusters: np.ndarray, num_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids sorted by cluster, then by id, and the first position of each cluster."""
    members = np.argsort(clusters, kind="stable")
    return members, np.searchsorted(clusters[members], np.arange(num_clusters + 1))


def _default_num_clusters(num_classes: int) -> int:
    return max(1, round(num_classes**0.5))


def _checked_clusters(
    clusters: TensorLike, num_classes: int, num_clusters: int | None
) -> np.ndarray:
    """Returns `clusters` as int64, or raises a ValueError."""
    clusters = np.asarray(clusters)
    if clusters.shape != (num_classes,) or not np.issubdtype(clusters.dtype, np.integer):
        raise ValueError(
            f"`clusters` must be {num_classes} integers, the cluster of each class. Received: "
            f"an array of shape {clusters.shape} and dtype {clusters.dtype}."
        )
    clusters = clusters.astype(np.int64)
    lowest, highest = int(clusters.min()), int(clusters.max())
    count = highest + 1 if num_clusters is None else num_clusters
    if lowest < 0 or highest >= min(count, num_classes):
        raise ValueError(
            f"`clusters` must be numbers from 0 to num_clusters - 1 = "
            f"{min(count, num_classes) - 1}. Received: numbers from {lowest} to {highest}. "
            "To number them from 0, use np.unique(clusters, return_inverse=True)[1]."
        )
    sizes = np.bincount(clusters, minlength=count)
    if not sizes.all():
        raise ValueError(
            f"Each of the {count} clusters must have a class. Received: `clusters` without "
            f"cluster {int(np.argmin(sizes))}. Leave `num_clusters` out and use "
            "np.unique(clusters, return_inverse=True)[1], which has no empty clusters."
        )
    return clusters


def k_means_clusters(rows: TensorLike, num_clusters: int) -> np.ndarray:
    """Returns the cluster of each row, by the spherical k-means that fits an `InvertedFile`.

    No cluster has more than twice `num_rows / num_clusters` rows, because the time of a
    function that uses the clusters can depend on the largest one. Larger clusters are clustered
    again. If all their rows are nearly equal, they are divided arbitrarily. Empty clusters are
    dropped. So `num_clusters` is approximate.
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
