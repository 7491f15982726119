"""Negatives in proportion to a quadratic kernel of features and class embeddings."""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.classes.row_sources import unit_length
from tf_largeout.papers.kernel_tree.kernel_tree import KernelTree
from tf_largeout.papers.kernel_tree.kernel_trees import KernelTrees
from tf_largeout.sampled_values import DRAWS, LEAST_COUNT, HeadAndTail, SampledValues
from tf_largeout.samplers.hard_negative_sampler import (
    HardNegativeSampler,
    distinct_in_row,
    seed_of_run,
)
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.types import Config


@named("kernel_tree")
@keras.saving.register_keras_serializable(package="tf_largeout")
class KernelTreeSampler(HardNegativeSampler):
    """Draws classes in proportion to a quadratic kernel of the features, exactly.

    For an example with features h, class c is drawn with probability

        q_c = (alpha o_c^2 + 1) / sum_j (alpha o_j^2 + 1),   o_c = <w_c, h> + b_c,

    which is large if the logit o_c is far from 0, whatever its sign. So it suits the softmax of
    `|o_c|`: with few draws, train with `AbsoluteSoftmaxLoss`, as the paper recommends (section
    3.3). With the usual softmax, draws are often classes with very negative logits. A draw uses
    a tree of sums and takes O(dim^2 log num_classes) operations. The time of a batch grows
    faster with num_classes: in a large tree, draws share fewer nodes, and read them from memory
    (lab/blanc_rendle/README.md). The expected counts are exact. With
    `projection_dim` p, the kernel replaces the logit by `<P [w_c; b_c], P [h; 1]>` with a fixed
    random matrix P of p rows. Draws and counts are exact for this kernel, and cost p^2 instead
    of dim^2. There are three forms:

    * `shared=True`, the default: all examples of the batch share one pool, `[num_sampled]`.
      Each member of the pool is drawn from the q of one example; the examples take turns. The
      expected count of class c is `num_sampled / batch sum_b q_bc`, where q_bc is its
      probability for example b. One dense product computes the counts.
    * `shared=False`: each example has its own classes, `[batch, num_sampled]`: independent
      draws from its q, with expected counts `num_sampled q_c`. Use a small `num_sampled`,
      because a step reads and updates `batch * num_sampled` class rows.
    * `num_hard=k`: each example has its own k draws. The distinct classes among them are the
      head of a `HeadAndTail`. The tail is `num_sampled - k` static draws that the batch shares.

    The first training step builds the tree, and later steps update it. With a row-sparse
    optimizer of `tf_largeout`, the leaves of all rows that a step has changed are summed again,
    so errors do not accumulate. The sampler also detects changes by `set_weights` or by a Keras
    optimizer. It then builds the tree again, at most once in 50 steps. Until then, draws come
    from an outdated q. The counts of own draws are still exact, but those of a pool are not.

    If the layer has `normalize=True`, `w_c` is the class row scaled to length 1 and h are the
    features scaled to length `scale`, so `o_c` is the logit of the layer.

    The state is stored in float32 weights of the layer, even if the class rows are bfloat16.
    For rows of width d, the sums take about `4 d` bytes per class, and with `normalize=True`
    the scaled rows take another `4 d`. (The class rows themselves take `2 d` in bfloat16.) With
    a projection, the projected rows take `4 p` bytes per class, and the sums about as many. A
    resumed run equals an uninterrupted one.

    Args:
        num_sampled: Number of sampled classes per example.
        alpha: Weight of the squared logit relative to the constant 1, above 0. The default is
            the paper's value. If logits are of order 1, nearly all draws depend on the squared
            logits. If they are smaller, more draws are uniform.
        projection_dim: p, at most the width of the embeddings, or None for no projection, as in
            the paper. Try 32 for a pool: the draws are less suitable, but a step is so much
            faster that, with the usual softmax, the model learns more in equal time
            (lab/kernel_trees/README.md). With the absolute softmax, no difference was visible.
        leaf_size: Number of classes in a leaf of the tree, which a draw scores one by one. None
            chooses it by the dimension of the kernel.
        shared: Whether the batch shares one pool. None, the default, is True without
            `num_hard`, and False with it. A pool is the form that learns most in equal time
            (lab/kernel_trees/README.md).
        num_hard: Number of draws from the tree per example, for the head. None draws all
            classes from the tree, without a tail.
        tail: With `num_hard`, the sampler of the other classes: a name such as "uniform", or a
            static `Sampler`.
        seed: Optional int that the layer's draws and the projection start from; random if None.

    Attributes:
        tail: With `num_hard`, the `Sampler` of the tail; else None.

    Raises:
        ValueError: If an argument is out of range, if `shared` is True and `num_hard` is given,
            or if `tail` is a sampler that searches. When the layer is built: if
            `projection_dim` is above the width of the embeddings.

    References:
        Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling", section 3.

    Example:
        head = LargeOutput(100_000, sampler=KernelTreeSampler(projection_dim=32))
    """

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
        super().__init__(num_sampled, num_hard, tail, seed=seed)
        tree = KernelTree(alpha, projection_dim, leaf_size)
        self.alpha, self.projection_dim = tree.alpha, tree.projection_dim
        self.leaf_size = tree.leaf_size
        self._trees: KernelTrees
        self.shared = boolean("shared", shared, or_none=True)
        if self.shared and num_hard is not None:
            raise ValueError(
                "`shared=True` draws one pool, but `num_hard` draws for each example. "
                f"Received: shared=True, num_hard={num_hard}. Pass only one of them."
            )

    @property
    def counts_are(self) -> str:
        return self.tail.counts_are if self.tail else DRAWS

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        matrix = layer.class_matrix
        as_read = unit_length if matrix.shards()[0].unit_rows else None
        make = functools.partial(
            KernelTree, self.alpha, self.projection_dim, self.leaf_size, as_read
        )
        self._trees = KernelTrees(matrix, make)
        self._trees.build(self, layer, matrix.dim, matrix.has_bias)

    def keep_up(self, layer: ClassLayer) -> None:
        seed = seed_of_run(layer)
        self._trees.each(lambda table, tree: tree.keep_up(seed, *table.variables()))

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        if self.tail:
            return super().draw(features, labels, layer)
        form = self._own if self.shared is False else self._pool
        return form(features, labels, layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        ids, _, _ = self._sample(features, labels[:, :0], self.num_searched, layer)
        return distinct_in_row(ids)

    def rebuild_replica(self, layer: ClassLayer) -> None:
        seed = seed_of_run(layer)
        self._trees.each(lambda table, tree: tree.rebuild(seed, *table.variables()))

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
        self.require_built()
        return self._trees.health()

    def get_config(self) -> Config:
        config = super().get_config()
        del config["start_step"]  # always 0
        return {
            **config,
            "alpha": self.alpha,
            "projection_dim": self.projection_dim,
            "leaf_size": self.leaf_size,
            "shared": self.shared,
        }

    def _sample(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        num_sampled: int,
        layer: ClassLayer,
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `KernelTree.sample`."""
        return self._trees.sample(features, labels, layer.next_seed(), num_sampled, shared)

    def _own(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> SampledValues:
        ids, log_q, label_log_q = self._sample(features, labels, self.num_sampled, layer)
        true_counts = _positive(tf.exp(label_log_q) * self.num_sampled)
        true_counts = tf.where(labels >= 0, true_counts, 1.0)
        return SampledValues(ids, true_counts, _positive(tf.exp(log_q) * self.num_sampled))

    def _pool(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> SampledValues:
        # An empty batch becomes one example of zeros: for it, logits differ only by their
        # biases.
        is_empty = tf.cast(tf.equal(tf.shape(features)[0], 0), tf.int32)
        features = tf.pad(features, [[0, is_empty], [0, 0]])
        no_labels = tf.zeros([tf.shape(features)[0], 0], tf.int64)
        pool, _, _ = self._sample(features, no_labels, self.num_sampled, layer, shared=True)

        def counts_of(ids: tf.Tensor) -> tf.Tensor:
            return _positive(self._trees.mean_probabilities(features, ids) * self.num_sampled)

        return SampledValues.of_pool(pool, labels, counts_of)


def _positive(counts: tf.Tensor) -> tf.Tensor:
    return tf.maximum(counts, LEAST_COUNT)
