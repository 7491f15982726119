"""`ShardDistribution`: draws of rows that are in shards, each with its own distribution."""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.search.row_distribution import RowDistribution
from tf_largeout.search.shard_draws import draw_shards, seed_of
from tf_largeout.search.sharded_structure import ShardedStructure
from tf_largeout.variables.row_shard import RowShard


class ShardDistribution(ShardedStructure[RowDistribution]):
    """`RowDistribution` over rows in shards: first draws a shard, then one of its rows.

    List l of shard s has the probability `softmax(<m_l, h> + b_l + log(size_l))` over the lists
    of all shards. This is the probability of the shard, from the sum over its lists, times the
    probability within the shard. Each shard makes all draws, on its device. A draw then uses
    the result of the shard that was drawn for it.

    Args:
        shards: The shards.
        distributions: The distribution of the rows of each shard.
    """

    def __init__(
        self, shards: Sequence[RowShard], distributions: Sequence[RowDistribution]
    ) -> None:
        super().__init__(shards, distributions)
        masses = self.each(lambda _, distribution: distribution.log_mass())
        log_masses = tf.stack(masses, axis=1)
        sizes = tf.constant([shard.num_rows for shard in shards], tf.float32)
        has_lists = tf.reduce_any(tf.math.is_finite(log_masses), axis=1, keepdims=True)
        self._of_shard = tf.nn.softmax(tf.where(has_lists, log_masses, tf.math.log(sizes)))

    def draw(self, num_draws: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `RowDistribution.draw`."""

        def draw_of_shard(
            shard: RowShard, distribution: RowDistribution
        ) -> tuple[tf.Tensor, tf.Tensor]:
            ids, within = distribution.draw(num_draws, seed_of(seed, shard.number))
            return ids + shard.first, within

        ids, within = zip(*self.each(draw_of_shard), strict=True)
        owner = draw_shards(self._of_shard, num_draws, seed_of(seed, len(self.shards)))
        ids, within = (
            tf.gather(tf.stack(parts, axis=-1), owner, batch_dims=2) for parts in (ids, within)
        )
        return ids, within * tf.gather(self._of_shard, owner, batch_dims=1)

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """See `RowDistribution.probabilities`."""
        local_ids = [shard.to_local(ids) for shard in self.shards]
        parts = self.each(
            lambda _, distribution, own: distribution.probabilities(tf.maximum(own, 0)),
            local_ids,
        )
        total = tf.zeros(tf.shape(ids))
        shares = tf.unstack(self._of_shard, axis=1)
        for own, within, share in zip(local_ids, parts, shares, strict=True):
            total += tf.where(own >= 0, within * share[:, tf.newaxis], 0)
        return total
