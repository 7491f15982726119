"""`ShardDistribution`: draws from shards of the classes, each by its own distribution."""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.samplers.shard_draws import draw_shards, seed_of
from tf_largeout.search import RowDistribution


class ShardDistribution:
    """As `RowDistribution`, over classes in shards: a shard by its total, then one of its rows.

    The probability of list l of shard s is `softmax(<m_l, h> + b_l + log(size_l))` over the
    lists of all shards: that of the shard, by the sum over its lists, times that within it.
    Each shard makes all draws of its own, where its lists are; those of the shards that are
    drawn count.

    Args:
        shards: The shards.
        distributions: That of each of them, of its rows.
    """

    def __init__(
        self, shards: Sequence[ClassShard], distributions: Sequence[RowDistribution]
    ) -> None:
        self._parts = list(zip(shards, distributions, strict=True))
        masses = []
        for shard, distribution in self._parts:
            with shard.place():
                masses.append(distribution.log_mass())
        log_masses = tf.stack(masses, axis=1)
        sizes = tf.constant([shard.matrix.num_classes for shard in shards], tf.float32)
        has_lists = tf.reduce_any(tf.math.is_finite(log_masses), axis=1, keepdims=True)
        self._of_shard = tf.nn.softmax(tf.where(has_lists, log_masses, tf.math.log(sizes)))

    def draw(self, num_draws: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws classes for each query, independently, with replacement.

        Args:
            num_draws: Number of classes per query.
            seed: int64 `[2]`; equal seeds give equal draws.

        Returns:
            `(ids, probabilities)`: int64 and float32 `[batch, num_draws]`.
        """
        ids, probabilities = [], []
        for shard, distribution in self._parts:
            with shard.place():
                drawn, within = distribution.draw(num_draws, seed_of(seed, shard.number))
                ids.append(drawn + shard.first)
                probabilities.append(within)
        owner = draw_shards(self._of_shard, num_draws, seed_of(seed, len(self._parts)))
        within = tf.gather(tf.stack(probabilities, axis=-1), owner, batch_dims=2)
        return (
            tf.gather(tf.stack(ids, axis=-1), owner, batch_dims=2),
            within * tf.gather(self._of_shard, owner, batch_dims=1),
        )

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """The probability with which one draw gives each of some classes.

        Args:
            ids: int64 `[batch, n]` in `[0, num_classes)`.

        Returns:
            float32 `[batch, n]`.
        """
        total = tf.zeros(tf.shape(ids))
        for (shard, distribution), of_shard in zip(
            self._parts, tf.unstack(self._of_shard, axis=1), strict=True
        ):
            own = shard.to_local(ids)
            with shard.place():
                within = distribution.probabilities(tf.maximum(own, 0))
            total += tf.where(own >= 0, within * of_shard[:, tf.newaxis], 0)
        return total
