"""`KernelTrees`: a kernel tree per shard of the rows."""

from typing import Any

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.row_sources import Table
from tf_largeout.papers.kernel_tree.kernel_tree import KernelTree
from tf_largeout.samplers.hard_negative_sampler import SearchShards, draw_shards, seed_of
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.variables.class_rows import map_by_shard


class KernelTrees(SearchShards[KernelTree]):
    """The kernel trees of the class rows, one per table.

    With several tables, a draw first takes a table, in proportion to the sum of its kernels,
    and then a row of its tree. So the probabilities are those of a single tree. All trees have
    the same projection.
    """

    def build(self, sampler: Sampler, layer: ClassLayer, *arguments: Any) -> None:
        super().build(sampler, layer, *arguments)
        for table, tree in zip(self.tables, self.parts, strict=True):
            table.on_rows_changed(tree.rows_changed)

    def sample(
        self,
        queries: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        num_sampled: int,
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Like `KernelTree.sample`; with `shared`, `label_log_q` has no meaning."""
        if len(self.parts) == 1:
            rows = self.tables[0].variables()
            return self.parts[0].sample(queries, labels, seed, num_sampled, *rows, shared)
        draws = _TreeDraws(self, queries, self._masses(queries), seed)
        if not shared:
            return draws.per_query(labels, num_sampled)
        return *draws.shared(num_sampled), tf.zeros(tf.shape(labels))

    def mean_probabilities(self, queries: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the mean over the queries of the `q_i` of rows `[n]`, by one dense product.

        It is exact if the sums are up to date.
        """
        total = tf.reduce_sum(self._masses(queries), axis=1, keepdims=True)

        def mean_of_table(table: Table, own: tf.Tensor) -> tf.Tensor:
            kernels = self.parts[table.number].kernels(queries, own, *table.variables())
            return tf.reduce_mean(kernels / total, axis=0)

        return map_by_shard(self.tables, ids, mean_of_table)

    def health(self) -> dict[str, Any]:
        """Like `KernelTree.health`, over all trees. `built_at` is the earliest build."""
        parts = [tree.health() for tree in self.parts]
        return {
            "built_at": min(part["built_at"] for part in parts),
            "leaf_size": max(part["leaf_size"] for part in parts),
            "megabytes": sum(part["megabytes"] for part in parts),
        }

    def _masses(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the kernels of each table, float32 `[batch, num_tables]`."""
        return tf.stack(self.each(lambda _, tree: tree.masses(queries)), axis=1)


class _TreeDraws:
    """Draws for a batch of queries: a shard in proportion to its kernels, then one of its rows.

    The kernels of all rows add up to Z, and those of shard s to Z_s, `masses`. Row i of shard s
    is drawn with probability `(Z_s / Z) (K(h, w_i) / Z_s)`. The reported probability is the
    product of the two factors that the draw used, even if the sums of a tree are out of date. A
    sum that is not finite raises a `tf.errors.InvalidArgumentError`.
    """

    def __init__(
        self,
        trees: KernelTrees,
        queries: tf.Tensor,
        masses: tf.Tensor,
        seed: tf.Tensor,
    ) -> None:
        self._trees, self._queries, self._seed = trees, queries, seed
        masses = checks.finite(
            masses,
            "features must be finite, and their products with the class embeddings must not "
            "overflow",
        )
        masses = tf.cast(masses, tf.float64)
        self._shares = masses / tf.reduce_sum(masses, axis=1, keepdims=True)

    def per_query(
        self, labels: tf.Tensor, num_sampled: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes `num_sampled` draws per query, see `KernelTree.sample`."""
        owners = draw_shards(self._shares, num_sampled, self._next_seed(0))
        shape = tf.shape(owners)
        asking = tf.repeat(tf.range(shape[0]), num_sampled)
        ids, log_q, label_log_q = self._sample(asking, tf.reshape(owners, [-1]), labels)
        ids, log_q = (
            tf.ensure_shape(tf.reshape(part, shape), [None, num_sampled])
            for part in (ids, log_q)
        )
        return ids, log_q, label_log_q

    def shared(self, num_sampled: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws a shared pool of `num_sampled` rows, for which the queries take turns."""
        batch = tf.shape(self._queries, tf.int64)[0]
        first = tf.random.stateless_uniform(
            [], self._next_seed(1), maxval=batch, dtype=tf.int64, alg="philox"
        )
        asking = (tf.range(num_sampled, dtype=tf.int64) * batch + first) // num_sampled
        shares = tf.gather(self._shares, asking)
        owners = draw_shards(shares, 1, self._next_seed(0))[:, 0]
        no_labels = tf.zeros([batch, 0], tf.int64)
        ids, log_q, _ = self._sample(tf.cast(asking, tf.int32), owners, no_labels)
        return tf.ensure_shape(ids, [num_sampled]), log_q

    def _sample(
        self, asking: tf.Tensor, owners: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes draw i for query `asking[i]` in shard `owners[i]`; both int32 `[n]`."""
        shards = self._trees.tables
        places = [tf.where(owners == shard.number)[:, 0] for shard in shards]
        queries_of = [tf.gather(asking, at) for at in places]
        labels_of = [shard.to_local(labels) for shard in shards]

        def draw(
            table: Table, tree: KernelTree, labels: tf.Tensor, asking: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            seed, rows = seed_of(self._seed, table.number), table.variables()
            return _draw(tree, self._queries, seed, labels, asking, *rows)

        drawn = self._trees.each(draw, labels_of, queries_of)
        log_shares = tf.unstack(tf.cast(tf.math.log(self._shares), tf.float32), axis=1)
        ids, log_q, label_log_q = [], [], tf.zeros(tf.shape(labels))
        for shard, log_share, own_labels, own_queries, found in zip(
            shards, log_shares, labels_of, queries_of, drawn, strict=True
        ):
            ids.append(shard.to_global(found[0]))
            log_q.append(found[1] + tf.gather(log_share, own_queries))
            own_log_q = found[2] + log_share[:, tf.newaxis]
            label_log_q = tf.where(own_labels >= 0, own_log_q, label_log_q)
        places = [tf.cast(at, tf.int32) for at in places]
        return (
            tf.dynamic_stitch(places, ids),
            tf.dynamic_stitch(places, log_q),
            label_log_q,
        )

    def _next_seed(self, number: int) -> tf.Tensor:
        """Returns a seed that differs from the seeds of the shards."""
        return seed_of(self._seed, len(self._trees.tables) + number)


def _draw(
    tree: KernelTree,
    queries: tf.Tensor,
    seed: tf.Tensor,
    labels: tf.Tensor,
    asking: tf.Tensor,
    embeddings: tf.Variable,
    bias: tf.Variable | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Makes one draw per entry of `asking`, and looks up the labels, within one shard.

    The op makes draws for each query that it gets. So it gets all queries, to look up the
    labels, and then those in `asking`. The draws for the first part are dropped.
    """
    own_queries, batch = tf.gather(queries, asking), tf.shape(queries)[0]
    if labels.shape[1] == 0:
        no_labels = tf.zeros([tf.size(asking), 0], tf.int64)
        ids, log_q, _ = tree.sample(own_queries, no_labels, seed, 1, embeddings, bias)
        return ids[:, 0], log_q[:, 0], tf.zeros([batch, 0])
    queries = tf.concat([queries, own_queries], axis=0)
    labels = tf.pad(labels, [[0, tf.size(asking)], [0, 0]], constant_values=-1)
    ids, log_q, label_log_q = tree.sample(queries, labels, seed, 1, embeddings, bias)
    return ids[batch:, 0], log_q[batch:, 0], label_log_q[:batch]
