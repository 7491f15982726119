"""Negatives in proportion to the quadratic kernel of features and class embeddings."""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.sampled_values import LEAST_COUNT, HeadAndTail, SampledValues
from tf_largeout.samplers.class_rows import rows_of, seed_of_run, structure_over
from tf_largeout.samplers.kernel_tree_head import KernelTreeHead
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.search import KernelTree, ShardedKernelTree
from tf_largeout.types import Config


@named("kernel_tree")
@keras.saving.register_keras_serializable(package="tf_largeout")
class KernelTreeSampler(Sampler):
    """Draws classes in proportion to a quadratic kernel of the row's features, exactly.

    Class c is drawn for a row with features h with probability

        q_c = (alpha o_c^2 + 1) / sum_j (alpha o_j^2 + 1),   o_c = <w_c, h> + b_c,

    which is large where the logit o_c is far from 0: partner of the softmax of `|o_c|`, and a
    good one of the softmax. A tree of sums draws from it in O(dim^2 log num_classes), and the
    expected counts are exact. With `projection_dim` p the logit in the kernel is
    `<P [w_c; b_c], P [h; 1]>` with a fixed random matrix P of p rows: draws and counts are as
    exact, of that kernel, and cost p^2 instead of dim^2. Forms:

    * `shared=True`, the default: one pool `[num_sampled]` for the batch. Each of its members is
      drawn from the q of a row, and the rows take turns: class c is expected
      `num_sampled / batch sum_b q_bc` times, which one dense product gives.
    * `shared=False`: own classes `[batch, num_sampled]` for each row, independent draws from
      its q, with expected counts `num_sampled q_c`. Take few: a step reads and updates
      `batch * num_sampled` rows.
    * `num_hard=k`: k own draws, of which repeats are left out, are the head of a `HeadAndTail`;
      the tail are `num_sampled - k` static draws that the batch shares.

    The tree is built in the first training step and follows the class embeddings inside the
    steps: with a row-sparse optimizer of `tf_largeout` the leaves of all rows that a step has
    changed are summed anew, and nothing drifts. Where the embeddings change otherwise, by
    `set_weights` or by an optimizer of Keras, that is noticed, and the tree is built anew, at
    most every 50 steps; until then own draws are from another q, but their counts are exact,
    and those of a pool are not.

    State, as weights of the layer: about as many floats as the class embeddings have, and with
    a projection `num_classes p` more and sums that are as many as these. A resumed run is equal
    to an uninterrupted one.

    Args:
        num_sampled: Number of classes a row is compared with.
        alpha: Weight of the squared logit against 1, above 0. The paper's value: with logits
            of order 1 nearly all draws follow the kernel, with smaller ones more are uniform.
        projection_dim: p, at most the width of the embeddings, or None for no projection, as in
            the paper. Try 32 for a pool: its draws are worse, but a step takes so much less
            that it learns more in equal time (lab/kernel_trees/README.md).
        leaf_size: Classes that a draw scores one by one, at the end of its way; None for
            a good number.
        shared: Whether the batch shares one pool; None for yes, unless there is a `num_hard`:
            of the forms it learns most in equal time (lab/kernel_trees/README.md).
        num_hard: How many classes of a row the tree draws, or None for all, without a tail.
        tail: With `num_hard`, what draws the others: a name such as "uniform", or a static
            `Sampler`.
        seed: Optional int that the layer's draws and the projection start from; random if None.

    Attributes:
        tail: With `num_hard`, the `Sampler` of the tail; else None.

    Raises:
        ValueError: If an argument is out of range, `shared` is True and there is a `num_hard`,
            or `tail` searches. When the layer is built: if `projection_dim` is above the width
            of the embeddings.

    References:
        Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling", section 3.

    Example:
        head = LargeOutput(100_000, sampler=KernelTreeSampler(projection_dim=32))
    """

    searches = True

    def __init__(
        self,
        num_sampled: int = 1024,
        alpha: float = 100.0,
        projection_dim: int | None = None,
        leaf_size: int | None = None,
        shared: bool | None = None,
        num_hard: int | None = None,
        tail: Sampler | Config | str | None = "uniform",
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed)
        tree = KernelTree(alpha, projection_dim, leaf_size)
        self.alpha, self.projection_dim = tree.alpha, tree.projection_dim
        self.leaf_size = tree.leaf_size
        self._tree: KernelTree | ShardedKernelTree
        self.shared = None if shared is None else boolean("shared", shared)
        self.num_hard, self.tail = num_hard, None
        self._head: KernelTreeHead | None = None
        if num_hard is None:
            return
        if self.shared:
            raise ValueError(
                "A shared pool has no classes of a row's own. Received: shared=True, "
                f"num_hard={num_hard}. Leave one of them out."
            )
        self._head = KernelTreeHead(self.num_sampled, num_hard, tail, self._sample)
        self.num_hard, self.tail = self._head.num_hard, self._head.tail

    @property
    def counts_are(self) -> str:
        return self.tail.counts_are if self.tail else super().counts_are

    def build(self, layer: ClassLayer) -> None:
        if self._head:
            self._head.build(layer)
        super().build(layer)
        matrix = layer.class_matrix
        arguments = self.alpha, self.projection_dim, self.leaf_size
        self._tree = structure_over(matrix, KernelTree, ShardedKernelTree, *arguments)
        add_weight = functools.partial(self.add_weight, layer)
        self._tree.build(matrix.num_classes, matrix.dim, matrix.has_bias, add_weight)
        observers = self._tree.row_observers()
        for shard, observer in zip(matrix.shards(), observers, strict=True):
            shard.matrix.on_rows_changed(observer)

    def release(self) -> None:
        super().release()
        if self._head:
            self._head.release()

    def take_classes(self, before: Any, change: ClassChange) -> None:
        if self._head:
            self._head.take_classes(before._head, change)

    def prepare(self, layer: ClassLayer) -> None:
        self._tree.keep_up(seed_of_run(layer), *rows_of(layer.class_matrix))

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        if self._head:
            return self._head.draw(features, labels, layer)
        form = self._own if self.shared is False else self._pool
        return form(features, labels, layer)

    def rebuild(self, layer: ClassLayer) -> None:
        """Sums the embeddings of now anew. O(num_classes dim^2).

        Training does it by itself. For use outside of a training step, after the embeddings
        were changed by hand.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        matrix = layer.class_matrix
        matrix.each_replica(lambda: self._tree.rebuild(seed_of_run(layer), *rows_of(matrix)))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the tree.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict: `built_at`, the training step that last summed all rows, or -1; `leaf_size`;
            and `megabytes`, the size of the sums.

        Raises:
            ValueError: If no layer has built it.
        """
        return {**super().health(layer), **self._tree.health()}

    tree_health = health  # its former name

    def get_config(self) -> Config:
        return {
            "num_sampled": self.num_sampled,
            "alpha": self.alpha,
            "projection_dim": self.projection_dim,
            "leaf_size": self.leaf_size,
            "shared": self.shared,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "seed": self.seed,
        }

    def _sample(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        num_sampled: int,
        layer: ClassLayer,
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `KernelTree.sample`."""
        rows = rows_of(layer.class_matrix)
        seed = layer.next_seed()
        return self._tree.sample(features, labels, seed, num_sampled, *rows, shared=shared)

    def _own(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> SampledValues:
        ids, log_q, label_log_q = self._sample(features, labels, self.num_sampled, layer)
        true_counts = _positive(tf.exp(label_log_q) * self.num_sampled)
        true_counts = tf.where(labels >= 0, true_counts, 1.0)
        return SampledValues(ids, true_counts, _positive(tf.exp(log_q) * self.num_sampled))

    def _pool(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> SampledValues:
        # For an empty batch a row of zeros, to which all classes are alike but for biases.
        is_empty = tf.cast(tf.equal(tf.shape(features)[0], 0), tf.int32)
        features = tf.pad(features, [[0, is_empty], [0, 0]])
        no_labels = tf.zeros([tf.shape(features)[0], 0], tf.int64)
        pool, _, _ = self._sample(features, no_labels, self.num_sampled, layer, shared=True)

        def counts_of(ids: tf.Tensor) -> tf.Tensor:
            rows = rows_of(layer.class_matrix)
            q = self._tree.mean_probabilities(features, ids, *rows)
            return _positive(q * self.num_sampled)

        return SampledValues.of_pool(pool, labels, counts_of)


def _positive(counts: tf.Tensor) -> tf.Tensor:
    return tf.maximum(counts, LEAST_COUNT)
