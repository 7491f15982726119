"""Draws from kernel trees over shards of the classes, by the probabilities of one tree."""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.samplers.shard_draws import draw_shards, seed_of
from tf_largeout.search import KernelTree

Parts = Sequence[tuple[ClassShard, KernelTree]]


class TreeDraws:
    """Draws for the rows of a batch: a shard in proportion to its kernels, then in its tree.

    The kernels of all classes add up to Z, those of shard s to Z_s: class c of it is drawn with
    probability `(Z_s / Z) (K(h, w_c) / Z_s)`. What is told of a draw is the product of both as
    it was drawn with, also where the sums of a tree are out of date.

    Args:
        parts: Each shard and the tree over its rows.
        features: float32 `[batch, dim]`.
        seed: int64 `[2]`.

    Raises:
        tf.errors.InvalidArgumentError: If a sum of kernels is not finite.
    """

    def __init__(self, parts: Parts, features: tf.Tensor, seed: tf.Tensor) -> None:
        self._parts, self._features, self._seed = parts, features, seed
        masses = tf.debugging.check_numerics(
            kernel_masses(parts, features),
            "features must be finite, and their products with the class embeddings must not "
            "overflow",
        )
        masses = tf.cast(masses, tf.float64)
        self._shares = masses / tf.reduce_sum(masses, axis=1, keepdims=True)

    def of_each_row(
        self, labels: tf.Tensor, num_sampled: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`num_sampled` draws of each row, as `KernelTree.sample` gives them."""
        owners = draw_shards(self._shares, num_sampled, self._next_seed(0))
        shape = tf.shape(owners)
        rows = tf.repeat(tf.range(shape[0]), num_sampled)
        ids, log_q, label_log_q = self._sample(rows, tf.reshape(owners, [-1]), labels)
        ids, log_q = (
            tf.ensure_shape(tf.reshape(part, shape), [None, num_sampled])
            for part in (ids, log_q)
        )
        return ids, log_q, label_log_q

    def of_all_rows(self, num_sampled: int) -> tuple[tf.Tensor, tf.Tensor]:
        """One pool: `num_sampled` draws, for which the rows take turns.

        Returns:
            `(ids, log_q)`, `[num_sampled]`.
        """
        batch = tf.shape(self._features, tf.int64)[0]
        first = tf.random.stateless_uniform(
            [], self._next_seed(1), maxval=batch, dtype=tf.int64, alg="philox"
        )
        rows = (tf.range(num_sampled, dtype=tf.int64) * batch + first) // num_sampled
        shares = tf.gather(self._shares, rows)
        owners = draw_shards(shares, 1, self._next_seed(0))[:, 0]
        no_labels = tf.zeros([batch, 0], tf.int64)
        ids, log_q, _ = self._sample(tf.cast(rows, tf.int32), owners, no_labels)
        return tf.ensure_shape(ids, [num_sampled]), log_q

    def _sample(
        self, rows: tf.Tensor, owners: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """A draw of each of `rows`, int32 `[n]`, in the shard that is its owner."""
        places, ids, log_q = [], [], []
        label_log_q = tf.zeros(tf.shape(labels))
        log_shares = tf.cast(tf.math.log(self._shares), tf.float32)
        for shard, tree in self._parts:
            at = tf.where(owners == shard.number)[:, 0]
            own, own_rows = shard.to_local(labels), tf.gather(rows, at)
            with shard.place():
                found = _draw(
                    shard,
                    tree,
                    self._features,
                    own,
                    own_rows,
                    seed_of(self._seed, shard.number),
                )
            log_share = log_shares[:, shard.number]
            places.append(tf.cast(at, tf.int32))
            ids.append(shard.to_global(found[0]))
            log_q.append(found[1] + tf.gather(log_share, own_rows))
            of_own = found[2] + log_share[:, tf.newaxis]
            label_log_q = tf.where(own >= 0, of_own, label_log_q)
        return (
            tf.dynamic_stitch(places, ids),
            tf.dynamic_stitch(places, log_q),
            label_log_q,
        )

    def _next_seed(self, number: int) -> tf.Tensor:
        """A seed that no shard has."""
        return seed_of(self._seed, len(self._parts) + number)


def kernel_masses(parts: Parts, features: tf.Tensor) -> tf.Tensor:
    """The sum of the kernels of each shard for each row, float32 `[batch, num_shards]`."""
    masses = []
    for shard, tree in parts:
        with shard.place():
            masses.append(tree.masses(features))
    return tf.stack(masses, axis=1)


def _draw(
    shard: ClassShard,
    tree: KernelTree,
    features: tf.Tensor,
    labels: tf.Tensor,
    rows: tf.Tensor,
    seed: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A draw of each of `rows`, and what is told of the labels, within one shard.

    Labels are asked about by queries of their own, whose draws do not count.
    """
    queries, batch = tf.gather(features, rows), tf.shape(features)[0]
    variables = shard.matrix.variables()
    if labels.shape[1] == 0:
        no_labels = tf.zeros([tf.size(rows), 0], tf.int64)
        ids, log_q, _ = tree.sample(queries, no_labels, seed, 1, *variables)
        return ids[:, 0], log_q[:, 0], tf.zeros([batch, 0])
    queries = tf.concat([features, queries], axis=0)
    labels = tf.pad(labels, [[0, tf.size(rows)], [0, 0]], constant_values=-1)
    ids, log_q, label_log_q = tree.sample(queries, labels, seed, 1, *variables)
    return ids[batch:, 0], log_q[batch:, 0], label_log_q[:batch]
