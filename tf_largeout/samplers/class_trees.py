"""The kernel trees of a `KernelTreeSampler`, over the class embeddings of a layer."""

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.samplers.tree_draws import TreeDraws, kernel_masses
from tf_largeout.search import KernelTree
from tf_largeout.variables.replicas import local_variable
from tf_largeout.variables.row_shard import map_by_shard


class ClassTrees:
    """A `KernelTree` over the class embeddings, or one over each of their shards.

    Trees of shards draw as one tree does: a shard in proportion to the sum over its root, and
    in it a class. They are where their rows are, hear there which of these a step has changed,
    and draw there: what travels are features, sums of kernels, ids and log probabilities.

    Args:
        alpha: As in `KernelTree`, like the others.
        projection_dim: Dimension, or None; the projection is that of one tree.
        leaf_size: Rows, or None.

    Attributes:
        alpha: As checked, like the others.
        projection_dim: Dimension or None.
        leaf_size: Rows or None.
    """

    def __init__(self, alpha: float, projection_dim: int | None, leaf_size: int | None) -> None:
        tree = KernelTree(alpha, projection_dim, leaf_size)
        self.alpha, self.projection_dim = tree.alpha, tree.projection_dim
        self.leaf_size = tree.leaf_size
        self._trees: list[KernelTree] = []

    def build(self, sampler: Sampler, layer: ClassLayer) -> None:
        """Makes the state, as weights of `layer` that `sampler` adds.

        Raises:
            ValueError: If the projection has a higher dimension than the class embeddings.
        """
        self._trees = []
        for shard in layer.class_matrix.shards():
            tree = KernelTree(self.alpha, self.projection_dim, self.leaf_size)
            matrix = shard.matrix
            add_weight = functools.partial(sampler.add_weight, layer, shard=shard)
            tree.build(matrix.num_classes, matrix.dim, matrix.has_bias, add_weight)
            matrix.on_rows_changed(tree.rows_changed)
            self._trees.append(tree)

    def keep_up(self, layer: ClassLayer) -> None:
        """Counts a training step, and brings the sums up to date with the rows."""
        seed = _seed_of_run(layer)
        for shard, tree in self._of(layer.class_matrix):
            with shard.place():
                tree.keep_up(seed, *shard.matrix.variables())

    def rebuild(self, layer: ClassLayer) -> None:
        """Sums the rows of now anew, on this replica."""
        seed = _seed_of_run(layer)
        for shard, tree in self._of(layer.class_matrix):
            with shard.place():
                tree.rebuild(seed, *shard.matrix.variables())

    def sample(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        num_sampled: int,
        matrix: ClassScorer,
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `KernelTree.sample`, from the rows of `matrix`; with `shared` without labels."""
        if len(self._trees) == 1:
            embeddings, bias = matrix.shards()[0].matrix.variables()
            return self._trees[0].sample(
                features, labels, seed, num_sampled, embeddings, bias, shared=shared
            )
        draws = TreeDraws(list(self._of(matrix)), features, seed)
        if not shared:
            return draws.of_each_row(labels, num_sampled)
        return *draws.of_all_rows(num_sampled), tf.zeros(tf.shape(labels))

    def mean_probabilities(
        self, features: tf.Tensor, ids: tf.Tensor, matrix: ClassScorer
    ) -> tf.Tensor:
        """The mean over the rows of a batch of the `q_c` of some classes, by dense products.

        Args:
            features: float32 `[batch, dim]`.
            ids: int64 `[n]`.
            matrix: The classes.

        Returns:
            float32 `[n]`, exact as far as the sums are those of the rows.
        """
        masses = kernel_masses(list(self._of(matrix)), features)
        total = tf.reduce_sum(masses, axis=1, keepdims=True)

        def of(shard: ClassShard, own: tf.Tensor) -> tf.Tensor:
            tree, variables = self._trees[shard.number], shard.matrix.variables()
            return tf.reduce_mean(tree.kernels(features, own, *variables) / total, axis=0)

        return map_by_shard(matrix.shards(), ids, of)

    def health(self) -> dict[str, Any]:
        """As `KernelTree.health`, of all trees; `built_at` is that of the earliest build."""
        parts = [tree.health() for tree in self._trees]
        return {
            "built_at": min(part["built_at"] for part in parts),
            "leaf_size": max(part["leaf_size"] for part in parts),
            "megabytes": sum(part["megabytes"] for part in parts),
        }

    def _of(self, matrix: ClassScorer) -> Iterator[tuple[ClassShard, KernelTree]]:
        return zip(matrix.shards(), self._trees, strict=True)


def _seed_of_run(layer: ClassLayer) -> tf.Tensor:
    """int64 `[2]`, the seed that the draws of the layer start from."""
    first = local_variable(layer.seed_state).read_value()[0]
    with devices.host_scope(layer.seed_state):
        return tf.stack([first, 0])
