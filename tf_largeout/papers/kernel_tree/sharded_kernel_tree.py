"""`ShardedKernelTree`: a kernel tree per shard of the rows."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.papers.kernel_tree.kernel_tree import KernelTree
from tf_largeout.papers.kernel_tree.tree_draws import TreeDraws
from tf_largeout.search.sharded_structure import ShardedStructure, on_each_shard
from tf_largeout.variables.row_shard import RowShard, map_by_shard


class ShardedKernelTree(ShardedStructure[KernelTree]):
    """`KernelTree` over rows in shards; see `ShardedStructure` for the arguments.

    A draw first takes a shard, in proportion to the sum of its kernels, and then a row of its
    tree. So the probabilities are those of a single tree.

    All shards have the same projection.

    Args:
        shards: The shards.
        parts: The trees.
    """

    keep_up = on_each_shard(KernelTree.keep_up)
    rebuild = on_each_shard(KernelTree.rebuild)

    def sample(
        self,
        queries: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        num_sampled: int,
        *rows: Sequence[Any],
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Like `KernelTree.sample`; with `shared`, `label_log_q` is 0."""
        draws = TreeDraws(self, rows, queries, self._masses(queries), seed)
        if not shared:
            return draws.per_query(labels, num_sampled)
        return *draws.shared(num_sampled), tf.zeros(tf.shape(labels))

    def mean_probabilities(
        self, queries: tf.Tensor, ids: tf.Tensor, *rows: Sequence[Any]
    ) -> tf.Tensor:
        """See `KernelTree.mean_probabilities`."""
        total = tf.reduce_sum(self._masses(queries), axis=1, keepdims=True)

        def mean_of_shard(shard: RowShard, own: tf.Tensor) -> tf.Tensor:
            own_rows = [variables[shard.number] for variables in rows]
            kernels = self.parts[shard.number].kernels(queries, own, *own_rows)
            return tf.reduce_mean(kernels / total, axis=0)

        return map_by_shard(self.shards, ids, mean_of_shard)

    def health(self) -> dict[str, Any]:
        """Like `KernelTree.health`, over all trees. `built_at` is the earliest build."""
        parts = [tree.health() for tree in self.parts]
        return {
            "built_at": min(part["built_at"] for part in parts),
            "leaf_size": max(part["leaf_size"] for part in parts),
            "megabytes": sum(part["megabytes"] for part in parts),
        }

    def _masses(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the kernels of each shard, float32 `[batch, num_shards]`."""
        return tf.stack(self.each(lambda _, tree: tree.masses(queries)), axis=1)
